"""Producing for requests: the answer follows Kafka's acknowledgement and reports the outcome for each id."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from http import HTTPStatus
from threading import Lock
from typing import Annotated, Any, Final, Generic, Protocol, TypeVar
from uuid import UUID

import structlog
from fastapi import Request
from pydantic import BaseModel, Field

from servicekit.http.deadline import deadline_of
from servicekit.http.problems import MEDIA_TYPE, Problem
from servicekit.http.read_your_writes import DESCRIPTION
from servicekit.http.threads import run_in_thread
from streamtable.base.types import Ack
from streamtable.errors import QueueFull, RetryLater, SerializationError, StreamtableError

R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)

log = structlog.get_logger()
_MARGIN_SECONDS: Final = 0.25  # the handler answers before the guard would

_IDS: Final = {"type": "array", "items": {"type": "string", "format": "uuid"}}
_NOT_ALL: Final[dict[str, Any]] = {
    MEDIA_TYPE: {
        "schema": {
            "title": "NotAcknowledged",
            "allOf": [{"$ref": "#/components/schemas/Problem"}],
            "type": "object",
            "properties": {
                "accepted": {"type": "array", "items": {"$ref": "#/components/schemas/Accepted"}},
                "unknown": {**_IDS, "description": "send these again, with these ids"},
                "not_sent": {**_IDS, "description": "those of `unknown` that are certainly not stored"},
                "rejected": {
                    **_IDS,
                    "description": "not stored, and they never will be: do not send them again as they are",
                },
            },
        }
    }
}


def not_all_responses(what: str) -> dict[int | str, dict[str, Any]]:
    """Return the responses for OpenAPI when only some records were acknowledged; `what` names them in the plural."""
    return {
        422: {
            "description": "The request is not valid; `errors` says where. Or Kafka refuses the records in `rejected`",
            "content": _NOT_ALL,
        },
        503: {"description": f"Not available, or only some {what} were acknowledged", "content": _NOT_ALL},
    }


class RecordEmitter(Protocol[R_contra]):
    """`streamtable.Emitter` for records by user."""

    def emit(self, key: str, value: R_contra) -> Future[Ack]: ...

    def close(self, timeout: float) -> None: ...


@dataclass(frozen=True, slots=True)
class SendTimeouts:
    """The timeouts of sending: the producer gives up first, then the handler, then the guard.

    Attributes:
        delivery: The seconds after which the producer gives up a record.
        wait: The seconds that a request waits for acknowledgements; longer than the delivery.
    """

    delivery: float = 4.0
    wait: float = 5.0

    @classmethod
    def of_delivery(cls, seconds: float) -> "SendTimeouts":
        """Return the timeouts of a service whose producer gives up after `seconds`."""
        return cls(seconds, seconds + 1)  # the client checks for expired records once a second

    @property
    def request(self) -> float:
        """The seconds from the head of a request to its answer."""
        return self.wait + 5


@dataclass(frozen=True, slots=True)
class OutgoingRecord(Generic[R]):
    """A record to be sent.

    Attributes:
        id: The id by which a repeated request can be recognised.
        user: The key of the record.
        record: The value of the record.
    """

    id: str
    user: str
    record: R


class Accepted(BaseModel):
    """A record that all in-sync replicas of Kafka have acknowledged."""

    id: UUID
    partition: int
    offset: int
    token: Annotated[str, Field(description=DESCRIPTION)]


class Sending(Generic[R]):
    """The records of one request on their way to Kafka. One thread sends; any thread may end it by reading the report.

    Args:
        emitter: Sends the records.
        outgoing: The records, in order.
    """

    def __init__(self, emitter: RecordEmitter[R], outgoing: Sequence[OutgoingRecord[R]]) -> None:
        self._emitter = emitter
        self._outgoing = outgoing
        self._lock = Lock()
        self._stopped = False
        # The futures of the records that were passed to the producer; None while one is being passed.
        self._begun: list[Future[Ack] | None] = []

    def run(self, end: float) -> None:
        """Send all and wait for the acknowledgements, until `end` on the clock of `time.monotonic` or `report`."""
        for each in self._outgoing:
            if not self._send(each, end):
                break
        wait([future for future in self._begun if future is not None], max(0.0, end - time.monotonic()))

    def _send(self, each: OutgoingRecord[R], end: float) -> bool:
        """Pass one record to the producer. False: it was rejected, and no later record may be sent, to keep the order."""
        with self._lock:
            if self._stopped or time.monotonic() >= end:
                return False
            self._begun.append(None)  # from now on it may be stored
        try:
            future = self._emitter.emit(each.user, each.record)
        except StreamtableError as error:  # nothing was queued
            future = Future()
            future.set_exception(QueueFull(str(error)) if isinstance(error, RetryLater) else error)
        with self._lock:
            self._begun[-1] = future
        return not isinstance(_failure(future), QueueFull)

    def report(self) -> "SendReport":
        """Send nothing more, and return the present outcome of each record. One that is being passed to the producer counts as sent."""
        with self._lock:
            self._stopped = True
            begun = list(self._begun)
        report = SendReport([], [], [], [])
        for each, future in zip(self._outgoing, begun, strict=False):
            report.add(each.id, future)
        for each in self._outgoing[len(begun) :]:
            report.add_not_sent(each.id)
        return report


@dataclass(slots=True)
class SendReport:
    """The outcome for the records of a request.

    Attributes:
        accepted: The members of `Accepted` for each acknowledged record.
        unknown: The ids of all other records that can be retried. They may be stored already, or soon.
        not_sent: The ids in `unknown` of records that are certainly not stored.
        rejected: The ids of records that Kafka rejects permanently.
        failure: A permanent error that is not the caller's, if there was one.
    """

    accepted: list[dict[str, Any]]
    unknown: list[str]
    not_sent: list[str]
    rejected: list[str]
    failure: BaseException | None = None

    def add(self, identity: str, future: Future[Ack] | None) -> None:
        """Add a record that was passed to the producer; `future` None: it is still being passed."""
        error = None if future is None else _failure(future)
        match error:
            case QueueFull():
                self.add_not_sent(identity)
            case SerializationError():
                self.rejected.append(identity)
            case None if future is not None and future.done():
                ack = future.result()
                place = {"partition": ack.partition, "offset": ack.offset, "token": ack.token}
                self.accepted.append({"id": identity, **place})
            case None | RetryLater():
                self.unknown.append(identity)
            case _:
                self.failure = self.failure or error
                self.unknown.append(identity)

    def add_not_sent(self, identity: str) -> None:
        self.unknown.append(identity)
        self.not_sent.append(identity)

    def members(self) -> Mapping[str, Any]:
        """Return the members of a problem document with this outcome."""
        return {name: getattr(self, name) for name in ("accepted", "unknown", "not_sent", "rejected")}


async def send_all(
    request: Request, emitter: RecordEmitter[R], outgoing: Sequence[OutgoingRecord[R]], timeouts: SendTimeouts
) -> list[dict[str, Any]]:
    """Send all records and wait for their acknowledgements. However the request ends after this, its answer names all ids.

    Args:
        request: The request, which has the deadline.
        emitter: Sends the records.
        outgoing: The records, in order.
        timeouts: The timeouts of sending.

    Returns:
        The members of `Accepted` for each record.

    Raises:
        Problem: Not all were acknowledged in time, or no thread was free to send them; it lists the outcome of each.
        StreamtableError: The service is misconfigured, for example its user may not write to the topic.
    """
    sending = Sending(emitter, outgoing)
    deadline = deadline_of(request.scope)
    deadline.report = lambda: sending.report().members()
    end = min(time.monotonic() + timeouts.wait, deadline.at - _MARGIN_SECONDS)
    await run_in_thread(sending.run, end)
    report = sending.report()
    if report.failure is not None:
        raise report.failure
    if report.unknown:
        raise Problem(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "Kafka did not acknowledge everything in time; send the unknown ones again with the same ids",
            retry_after=1,
            members=report.members(),
        )
    if report.rejected:
        raise Problem(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "Kafka refuses the rejected ones; do not send them again as they are",
            members=report.members(),
        )
    return report.accepted


def _failure(future: Future[Ack]) -> BaseException | None:
    """Return why a record was not acknowledged; None if it was, or if that is not known yet."""
    return future.exception() if future.done() else None
