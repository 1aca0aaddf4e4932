"""The destination of the audit trail of a process: its log and, if set, a topic."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from threading import Semaphore
from typing import TYPE_CHECKING, Any, Final

import structlog

from servicekit.http.audit import AuditEntry
from streamtable import Emitter, Json, Kafka, Stream, String
from streamtable.errors import StreamtableError

if TYPE_CHECKING:
    from concurrent.futures import Future

log = structlog.get_logger()
_CLOSE_SECONDS: Final = 5.0
# Of 4 KB at most each, fewer than the queue of the emitter takes: `emit` never waits.
_PENDING_MAX: Final = 5000
Write = Callable[[AuditEntry], None]


@contextmanager
def auditing(service: str, instance: str, kafka: Kafka, topic: str | None) -> Iterator[Write]:
    """Yield the sink of the audit trail for the block; at its end pending entries are awaited.

    While Kafka does not acknowledge them, 5,000 records wait; further entries are logged only, with a warning.

    Args:
        service: The name of the service, which is the key of its records.
        instance: The instance id of the process.
        kafka: The cluster of the topic.
        topic: A topic of JSON records; None: entries are logged only.
    """
    if topic is None:
        yield lambda entry: _log(service, entry)
        return
    stream: Stream[str, Any] = Stream(topic, key=String(), value=Json())
    emitter = Emitter(stream, kafka)
    room = Semaphore(_PENDING_MAX)

    def done(sent: "Future[Any]") -> None:
        room.release()
        if (error := sent.exception()) is not None:
            log.warning("an audit record was not acknowledged", reason=str(error))

    def write(entry: AuditEntry) -> None:
        _log(service, entry)
        if not room.acquire(blocking=False):
            log.warning("an audit record was not sent", reason=f"{_PENDING_MAX:,} are not acknowledged")
            return
        at = time.time_ns() // 1_000_000
        record = {"at": at, "service": service, "instance": instance, **asdict(entry)}
        try:
            emitter.emit(service, record).add_done_callback(done)
        except StreamtableError as error:
            room.release()
            log.warning("an audit record was not sent", reason=str(error))

    try:
        yield write
    finally:
        try:
            emitter.close(_CLOSE_SECONDS)
        except StreamtableError as error:
            log.warning("audit records were not acknowledged", reason=str(error))


def _log(service: str, entry: AuditEntry) -> None:
    log.info("audit", service=service, **asdict(entry))
