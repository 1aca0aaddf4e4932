"""Errors of gRPC calls: a code, a fixed text, and details that programs can read."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, Final

import grpc
import structlog
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from servicekit.peer_places import GaveWay, TooManyOfPeer
from servicekit.streams import Stopping, TooManyStreams
from servicekit.tables.listing import NoPrefixes
from streamtable.errors import NotReady, RetryLater, UnreadableRow

log = structlog.get_logger()
DOMAIN: Final = "streamtable"
RETRY_SECONDS: Final = 1.0


class CallRefused(Exception):
    """A call that is answered with an error.

    Args:
        code: The gRPC status code.
        details: A fixed text that names the error and its remedy.
        reason: The error's name for programs, in capitals; None: the code's name.
        fields: The invalid fields of the request, each with its error; the names are never the caller's text.
        retry_seconds: The seconds after which the same call may succeed; None: a retry does not help.
        metadata: Further details for programs; names and values are never the caller's text.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        details: str,
        *,
        reason: str | None = None,
        fields: Sequence[tuple[str, str]] = (),
        retry_seconds: float | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(details)
        self.code = code
        self.details = details
        self.reason = reason or code.name
        self.fields = tuple(fields)
        self.retry_seconds = retry_seconds
        self.metadata = dict(metadata or {})

    def status(self) -> grpc.Status:
        """Return code and text, with the details in the trailing metadata `grpc-status-details-bin`."""
        details: list[Any] = [ErrorInfo(reason=self.reason, domain=DOMAIN, metadata=self.metadata)]
        if self.fields:
            wrong = [BadRequest.FieldViolation(field=name, description=text) for name, text in self.fields]
            details.append(BadRequest(field_violations=wrong))
        if self.retry_seconds is not None:
            details.append(RetryInfo(retry_delay=Duration(seconds=ceil(self.retry_seconds))))
        number: int = self.code.value[0]
        status = Status(code=number, message=self.details, details=[_packed(detail) for detail in details])
        return rpc_status.to_status(status)


def invalid(field: str, text: str) -> CallRefused:
    """Return INVALID_ARGUMENT for one field of the request."""
    return CallRefused(
        grpc.StatusCode.INVALID_ARGUMENT, f"{field}: {text}", reason="INVALID_FIELD", fields=[(field, text)]
    )


def refusal(error: Exception) -> CallRefused:
    """Return the answer to an error that a servicer raised. An unknown error is logged and becomes INTERNAL."""
    code = grpc.StatusCode.UNAVAILABLE
    match error:
        case CallRefused():
            return error
        case NotImplementedError():  # by a generated servicer
            return CallRefused(grpc.StatusCode.UNIMPLEMENTED, "the method is not served")
        case NoPrefixes():
            return invalid("prefix", str(error))
        case UnreadableRow():
            return CallRefused(
                grpc.StatusCode.DATA_LOSS,
                "the stored row cannot be decoded; its key must be written again",
                reason="UNREADABLE_ROW",
                metadata=place_of(error),
            )
        case TooManyOfPeer():
            code, reason = grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_STREAMS_OF_PEER"
            text = "this address has all the streams it may have; close one"
        case GaveWay():
            code, reason = grpc.StatusCode.RESOURCE_EXHAUSTED, "GAVE_WAY"
            text = "another address with fewer streams gets this place; retry the request, or ask another one"
        case TooManyStreams():
            code, reason = grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_STREAMS"
            text = "the server has all the streams it can take; close one, or ask another one"
        case Stopping():
            reason, text = "STOPPING", "the server is stopping; connect again and retry the request"
        case NotReady():
            reason, text = "NOT_READY", "the table is being loaded; retry the request"
        case RetryLater():
            reason, text = "UNAVAILABLE", "the service cannot answer at the moment; retry the request"
        case _:
            log.error("call failed", exc_info=error)
            return CallRefused(grpc.StatusCode.INTERNAL, "the service failed")
    return CallRefused(code, text, reason=reason, retry_seconds=RETRY_SECONDS)


def place_of(error: UnreadableRow) -> dict[str, str]:
    """Return the known parts of the row's position, for the error details."""
    facts = {"topic": error.topic, "partition": error.partition, "before_offset": error.position}
    return {name: str(fact) for name, fact in facts.items() if fact is not None}


def _packed(detail: Any) -> Packed:
    packed = Packed()
    packed.Pack(detail)
    return packed
