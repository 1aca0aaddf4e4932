"""Which records a process has in its hands: what is left of that when it dies tells which record may have killed it.

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
    """Consecutive records of a partition, one of which may have ended the process that handled them."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int

    @classmethod
    def of(cls, records: RecordBatch) -> "Suspects":
        return cls(records.topic, records.partition, records.first_offset, records.last_offset)


class InHand(Protocol):
    """A note that outlives the process.

    Attributes:
        left: What the process before this one had in its hands when it died; None if it ended in order.
    """

    @property
    def left(self) -> Suspects | None: ...

    def take(self, suspects: Suspects) -> None:
        """These records are going to be handled."""
        ...

    def release(self) -> None:
        """No records are being handled."""
        ...


class NotNoted:
    """For processors without a disk of their own."""

    left: Suspects | None = None

    def take(self, suspects: Suspects) -> None:
        pass

    def release(self) -> None:
        pass


NOT_NOTED = NotNoted()
