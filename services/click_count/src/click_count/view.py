"""The view service: click counts over gRPC, from a local copy of the table."""

from functools import partial
from typing import Final

from click_count.windows import HOURS_TABLE, MINUTES_TABLE
from contracts.grpc.click_count.v1 import click_count_pb2 as pb
from servicekit.grpc.table_service import GrpcTableService, TableContract, WindowCall
from servicekit.tables.keys import URLS

CONTRACT: Final[TableContract[int]] = TableContract(
    service=pb.DESCRIPTOR.services_by_name["ClickCounts"],
    field="count",
    value=int,
    missing="no clicks of this user are known",
    windows=(WindowCall("ListMinutes", MINUTES_TABLE), WindowCall("ListHours", HOURS_TABLE, URLS)),
)
ClickCountsService: Final = partial(GrpcTableService[int], CONTRACT)
