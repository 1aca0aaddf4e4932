"""What emitter services share: they answer when Kafka has acknowledged a record, and say where it stands."""

import time
from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Final, Generic, Protocol, TypeVar
from uuid import UUID

from pydantic import BaseModel, Field

from servicekit.own_writes import DESCRIPTION
from servicekit.problems import MEDIA_TYPE, Problem
from streamtable.errors import RetryLater
from streamtable.types import Ack

R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)

ACKNOWLEDGED_SECONDS: Final = 5.0
"""How long one request waits for Kafka."""

NOT_ALL_CONTENT: Final[dict[str, Any]] = {
    MEDIA_TYPE: {
        "schema": {
            "title": "NotAcknowledged",
            "allOf": [{"$ref": "#/components/schemas/Problem"}],
            "type": "object",
            "properties": {
                "accepted": {"type": "array", "items": {"$ref": "#/components/schemas/Accepted"}},
                "unknown": {
                    "type": "array",
                    "items": {"type": "string", "format": "uuid"},
                    "description": "send these again, with these ids",
                },
            },
        }
    }
}
"""For OpenAPI: what comes with 503 when only some records were acknowledged."""


class RecordEmitter(Protocol[R_contra]):
    """`streamtable.Emitter` for records by user."""

    def emit(self, key: str, value: R_contra) -> Future[Ack]: ...

    def close(self, timeout: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Outgoing(Generic[R]):
    """A record to be sent.

    Attributes:
        id: names it, so that a repeated request can be recognised.
        user: its key.
        record: itself.
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


def send_all(
    emitter: RecordEmitter[R], outgoing: Sequence[Outgoing[R]], seconds: float
) -> list[dict[str, Any]]:
    """Send all and wait for all.

    Returns:
        What `Accepted` describes, for each.

    Raises:
        Problem: not all were acknowledged in that time; it lists what became of each.
    """
    end = time.monotonic() + seconds
    futures: list[Future[Ack]] = []
    for each in outgoing:
        try:
            futures.append(emitter.emit(each.user, each.record))
        except RetryLater:
            break  # the queue is full: those that follow are not sent, which keeps their order
    wait(futures, max(0.0, end - time.monotonic()))
    accepted = []
    unknown = [each.id for each in outgoing[len(futures) :]]
    for each, future in zip(outgoing, futures, strict=False):
        ack = _ack(future)
        if ack is None:
            unknown.append(each.id)
        else:
            place = {"partition": ack.partition, "offset": ack.offset, "token": ack.token}
            accepted.append({"id": each.id, **place})
    if unknown:
        raise Problem(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "Kafka did not acknowledge everything in time; send the unknown ones again with the same ids",
            retry_after=1,
            members={"accepted": accepted, "unknown": unknown},
        )
    return accepted


def _ack(future: Future[Ack]) -> Ack | None:
    if not future.done():
        return None
    error = future.exception()
    return None if isinstance(error, RetryLater) else future.result()
