"""The view service: click counts over gRPC, from a local copy of the table."""

from functools import partial
from typing import Final

from contracts.grpc.click_count.v1 import click_count_pb2 as pb
from servicekit.grpc.table_service import GrpcTableService, TableContract

CONTRACT: Final[TableContract[int]] = TableContract(
    service=pb.DESCRIPTOR.services_by_name["ClickCounts"],
    field="count",
    value=int,
    missing="no clicks of this user are known",
)
ClickCountsService: Final = partial(GrpcTableService[int], CONTRACT)
