"""In-band watermarks: the watermarks that the groups of a flow pass on to the readers of their outputs.

The records of several producing tasks lie in one partition in any order, so the order says nothing about which of them are
late. Hence the producers say it themselves:

- Each record carries, in the header `LATE_BEFORE`, the time before which windows were closed for the event that it was
  made of. It is late for its reader if it was late at its source, however it lies between the records of others.
- Each producing task writes its watermark, and whether it is idle, into each partition of the stream, as a record without key and value with the
  header `WATERMARK`, in the transaction of the commit that advanced it. All that the task writes behind it
  carries a `LATE_BEFORE` at or after that watermark. The reader's watermark is the least of all producers', so no
  record that was in time at its source meets a closed window. Those that are idle are not waited for.

A producer is a task, which is a partition of the producing group: processes come and go, it stays the same. Each mark says
how many there are, so that one that has not written anything yet is waited for.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from struct import Struct
from typing import NamedTuple

from streamtable.base.deadletter import PREFIX
from streamtable.base.event_time import NO_TIME
from streamtable.base.types import Header, Headers, RecordBatch

LATE_BEFORE = PREFIX + "late-before"
"""The header of a record: milliseconds since 1970 as 8 bytes, big-endian and signed."""
WATERMARK = PREFIX + "watermark"
"""The header of a mark: the number of the producer and how many there are in 4 bytes each, the watermark in 8, big-endian;
then one byte: 1 if the producer is idle, 0 if it is not."""
STAMP_BYTES = len(LATE_BEFORE) + 8 + 8
"""The bytes that the header `LATE_BEFORE` adds to a record: its name, its value, and the lengths of both."""
PRODUCERS_MAX = 100_000

# Confluent's and Apicurio's serializers name the schema of a record's bytes in headers. An output is encoded by its own codec:
# its readers would take the schema of other bytes, and read wrong values without an error.
_NOT_COPIED = (PREFIX, "__key_schema_id", "__value_schema_id", "apicurio.key.", "apicurio.value.")

_TIME = Struct(">q")
_MARK = Struct(">iiq?")
_LATEST_MS = 253_402_300_799_999  # the end of the year 9999


class Mark(NamedTuple):
    """The event time that a producing task has reached.

    Attributes:
        producer: The number of the task: its partition.
        producers: The number of tasks of the producing group.
        watermark_ms: The watermark of the task; `NO_TIME` of an idle task that has never had an event.
        idle: Whether all inputs of the task are idle and no row of it is still to fall due, so that readers need not wait.
    """

    producer: int
    producers: int
    watermark_ms: int
    idle: bool = False

    @property
    def header(self) -> Header:
        """The header of the record that holds the mark."""
        return WATERMARK, _MARK.pack(*self)

    @staticmethod
    def read(headers: Headers) -> "Mark | None":
        """Return the mark of a record; None if it is not a mark."""
        for name, value in headers:
            if name == WATERMARK and value is not None and len(value) == _MARK.size:
                mark = Mark(*_MARK.unpack(value))
                if (
                    0 <= mark.producer < mark.producers <= PRODUCERS_MAX
                    and (NO_TIME if mark.idle else 0) <= mark.watermark_ms <= _LATEST_MS
                ):
                    return mark
        return None


def stamped(headers: Headers, late_before_ms: int) -> Headers:
    """Return the headers of a record with the time before which windows are closed for it, replacing another such time."""
    others = [each for each in headers if each[0] != LATE_BEFORE] if headers else ()
    return [*others, (LATE_BEFORE, _TIME.pack(late_before_ms))]


def stamps(late_before_ms: Iterable[int]) -> list[Headers]:
    """Return the stamped headers of records without other headers. See `stamped`."""
    return [[pair] for pair in zip(repeat(LATE_BEFORE), map(_TIME.pack, late_before_ms), strict=False)]


def own_headers(found: Sequence[Headers | None]) -> list[Headers] | None:
    """Return the headers of each record that a record made of it may have; None if no record has any.

    The engine's own are not among them, and those that name the schema of its bytes are not.
    """
    if not any(found):
        return None
    if all(each is not None and len(each) == 1 and each[0][0] == LATE_BEFORE for each in found):
        return None  # as in a topic between two groups
    own: list[Headers] = [[one for one in each or () if not one[0].startswith(_NOT_COPIED)] for each in found]
    return own if any(own) else None


@dataclass(frozen=True)
class Marked:
    """The records of a stream with watermarks, without the marks between them.

    Attributes:
        records: The records without the marks.
        late_before_ms: The value of the header `LATE_BEFORE` of each record; `NO_TIME` for a record without it.
        marks: The marks, each with the number of records before it.
        keep: False for each mark, true for each other record, in the order of all records. None if there are no marks.
    """

    records: RecordBatch
    late_before_ms: Sequence[int]
    marks: Sequence[tuple[int, Mark]]
    keep: Sequence[bool] | None

    @property
    def carries(self) -> bool:
        """Return whether one of the records is a mark or has a stamp."""
        return bool(self.marks) or any(at != NO_TIME for at in self.late_before_ms)

    @classmethod
    def read(cls, records: RecordBatch) -> "Marked":
        """Read the marks and stamps of records."""
        late_before: list[int] = []
        marks: list[tuple[int, Mark]] = []
        keep: list[bool] | None = None
        unpack, size = _TIME.unpack, _TIME.size
        for index, (key, headers) in enumerate(zip(records.keys, records.each_headers(), strict=True)):
            if key is None and headers and (mark := Mark.read(headers)) is not None:
                keep = keep or [True] * len(records)
                keep[index] = False
                marks.append((len(late_before), mark))
                continue
            found = NO_TIME
            for name, value in headers or ():
                if name == LATE_BEFORE and value is not None and len(value) == size:
                    (found,) = unpack(value)
            late_before.append(max(found, NO_TIME))
        return cls(records if keep is None else records.only(keep), late_before, marks, keep)
