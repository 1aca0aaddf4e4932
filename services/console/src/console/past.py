"""What processes had told before the console was started, as far as their topic still has it."""

from typing import Final

import structlog

from console.history import Told
from console.records import NoSuchTopic, Reader, Record
from contracts.records import PROCESS_STATUS
from streamtable import Avro
from streamtable.errors import PoisonRecord, RetryLater

log = structlog.get_logger()
RECORDS_MAX: Final = 20_000
_STATUS: Final = Avro(PROCESS_STATUS)


def past(reader: Reader, topic: str) -> list[Told]:
    """The last 20,000 records of the topic, fewer where it was compacted; those of a process in their order.

    A console can do without: when Kafka does not answer, there are none.
    """
    try:
        with reader.looking() as admin:
            marks = admin.watermarks_known(reader.places(admin, topic))
        each = RECORDS_MAX // max(1, len(marks))
        starts = {place: max(mark.low, mark.high - each) for place, mark in marks.items()}
        found = reader.read(starts, {place: mark.high for place, mark in marks.items()}, keep=each)
    except (RetryLater, NoSuchTopic) as error:
        log.warning("what has happened before is not known", reason=str(error))
        return []
    return [told for part in found.values() for record in part if (told := _told(record)) is not None]


def _told(record: Record) -> Told | None:
    """None if it cannot be read: anybody may write to the topic."""
    try:
        status = None if record.value is None else _STATUS.decode(record.value)
    except PoisonRecord:
        return None  # the collector says which, while it is the latest of its key
    return Told((record.key or b"").decode(errors="replace"), status, record.timestamp)
