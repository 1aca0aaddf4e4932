"""The view service: statuses over gRPC, from a local copy of the table."""

from functools import partial
from typing import Any, Final

from contracts.grpc.user_status.v1 import user_status_pb2 as pb
from contracts.records import UserStatus
from servicekit.grpc.table_service import GrpcTableService, TableContract


def _status(row: UserStatus) -> dict[str, Any]:
    return {"status": row["status"], "at": row["at"], "id": row["id"], "clicks": row["clicks"]}


CONTRACT: Final = TableContract(
    service=pb.DESCRIPTOR.services_by_name["UserStatuses"],
    field="status",
    value=_status,
    missing="no status of this user is known",
)
UserStatusesService: Final = partial(GrpcTableService[UserStatus], CONTRACT)
