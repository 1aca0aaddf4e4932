"""The view service: the reach of URLs over gRPC, from a local copy of the table."""

from functools import partial
from typing import Any, Final

from contracts.grpc.tweet_reach.v1 import tweet_reach_pb2 as pb
from contracts.records import Reach
from servicekit.grpc.table_service import GrpcTableService, TableContract
from servicekit.tables.keys import URLS


def _reach(row: Reach) -> dict[str, Any]:
    top = [{"author": one["author"], "followers": one["followers"]} for one in row["top"]]
    return {
        "reach": row["reach"],
        "estimate": row["estimate"],
        "tweets": row["tweets"],
        "authors": row["authors"],
        "top": top,
    }


CONTRACT: Final = TableContract(
    service=pb.DESCRIPTOR.services_by_name["TweetReaches"],
    field="reach",
    value=_reach,
    missing="this URL is in no tweet",
    keys=URLS,
    details=lambda row: {"sketch": row["sketch"]},
)
TweetReachesService: Final = partial(GrpcTableService[Reach], CONTRACT)
