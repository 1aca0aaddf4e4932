"""The view service: stocks over gRPC, from a local copy of the table."""

from functools import partial
from typing import Final

from contracts.grpc.inventory.v1 import inventory_pb2 as pb
from contracts.records import Stock
from inventory.keys import ITEM_KEYS
from servicekit.grpc.table_service import GrpcTableService, TableContract

CONTRACT: Final[TableContract[Stock]] = TableContract(
    service=pb.DESCRIPTOR.services_by_name["Stocks"],
    field="stock",
    value=lambda row: {**row},
    missing="the warehouse does not list this product",
    keys=ITEM_KEYS,
)
StocksService: Final = partial(GrpcTableService[Stock], CONTRACT)
