from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from structlog.testing import capture_logs

from servicekit.grpc.errors import CallRefused, invalid, refusal
from servicekit.streams import Stopping, TooManyStreams
from streamtable.errors import NotReady, RetryLater, StoreCorrupted

SECRET_TEXT = "a secret text of the implementation"


def details_of(refused: CallRefused, kind: Any) -> Any:
    status: Any = refused.status()
    message = Status.FromString(dict(status.trailing_metadata)["grpc-status-details-bin"])
    assert (message.code, message.message) == (refused.code.value[0], refused.details)
    found = kind()
    return found if any(detail.Unpack(found) for detail in message.details) else None


def test_every_error_has_a_reason() -> None:
    info = details_of(CallRefused(grpc.StatusCode.NOT_FOUND, "no such thing"), ErrorInfo)
    assert (info.reason, info.domain) == ("NOT_FOUND", "streamtable")


def test_a_wrong_field_is_named_in_the_text_and_in_the_details() -> None:
    refused = invalid("limit", "0 to 10")
    assert (refused.code, refused.details) == (grpc.StatusCode.INVALID_ARGUMENT, "limit: 0 to 10")
    violations = details_of(refused, BadRequest).field_violations
    assert [(violation.field, violation.description) for violation in violations] == [("limit", "0 to 10")]
    assert details_of(refused, RetryInfo) is None


@pytest.mark.parametrize(("seconds", "reported"), [(0.1, 1), (1.0, 1), (1.2, 2), (60.0, 60)])
def test_the_retry_delay_is_in_whole_seconds(seconds: float, reported: int) -> None:
    refused = CallRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, "ask again", retry_seconds=seconds)
    assert details_of(refused, RetryInfo).retry_delay.seconds == reported


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (TooManyStreams(SECRET_TEXT), grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_STREAMS"),
        (Stopping(SECRET_TEXT), grpc.StatusCode.UNAVAILABLE, "STOPPING"),
        (NotReady(SECRET_TEXT), grpc.StatusCode.UNAVAILABLE, "NOT_READY"),
        (RetryLater(SECRET_TEXT), grpc.StatusCode.UNAVAILABLE, "UNAVAILABLE"),
        (NotImplementedError(SECRET_TEXT), grpc.StatusCode.UNIMPLEMENTED, "UNIMPLEMENTED"),
        (StoreCorrupted(SECRET_TEXT), grpc.StatusCode.INTERNAL, "INTERNAL"),
        (ValueError(SECRET_TEXT), grpc.StatusCode.INTERNAL, "INTERNAL"),
    ],
)
def test_an_error_becomes_a_code_and_a_fixed_text(
    error: Exception, code: grpc.StatusCode, reason: str
) -> None:
    with capture_logs() as logged:
        refused = refusal(error)
    assert (refused.code, refused.reason) == (code, reason)
    assert SECRET_TEXT not in refused.details
    assert bool(logged) == (code is grpc.StatusCode.INTERNAL)
    assert (details_of(refused, RetryInfo) is not None) == isinstance(error, RetryLater)


def test_a_call_refusal_is_returned_unchanged() -> None:
    refused = CallRefused(grpc.StatusCode.NOT_FOUND, "no such thing")
    assert refusal(refused) is refused
