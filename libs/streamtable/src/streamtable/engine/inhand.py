"""Records which records are being handled, so that after a crash the record that may have caused it is known.

Some records end the process instead of raising: a decoder in C that crashes, a handler that uses up the memory. Nothing
can be caught or logged then, and the next process dies of the same record. So the place of the records that are being
handled is noted outside the process, and read by the next one: it logs the place, and begins with commits of one record,
so that each death leaves fewer records in question, and in the end one, which is the next one of its partition.
"""

from dataclasses import dataclass
from typing import Protocol

from streamtable.types import RecordBatch


@dataclass(frozen=True, slots=True)
class Suspects:
    """Consecutive records of a partition, one of which may have crashed the process that handled them."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int

    @classmethod
    def of(cls, records: RecordBatch) -> "Suspects":
        return cls(records.topic, records.partition, records.first_offset, records.last_offset)


class InHand(Protocol):
    """A note on disk of the records being handled, which survives the process.

    Attributes:
        left: The records that the previous process was handling when it died; None if it ended in order.
    """

    @property
    def left(self) -> Suspects | None: ...

    def take(self, suspects: Suspects) -> None:
        """Note that these records are about to be handled."""
        ...

    def release(self) -> None:
        """Note that no records are being handled."""
        ...


class NotNoted:
    """Notes nothing; for processors without a disk of their own."""

    left: Suspects | None = None

    def take(self, suspects: Suspects) -> None:
        pass

    def release(self) -> None:
        pass


NOT_NOTED = NotNoted()
