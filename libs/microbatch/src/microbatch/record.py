"""A decoded record of a batch."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from streamtable.base.types import Headers, RecordBatch

K = TypeVar("K")
E = TypeVar("E")


@dataclass(slots=True, eq=False)
class Record(Generic[K, E]):
    """A decoded record of a batch.

    Attributes:
        key: The key, as the stream's codec decodes it.
        value: The value, as the stream's codec decodes it.
        stream: The name of the input; of a replayed dead letter, the input of its origin.
        raw: The fetched records that contain it.
        index: The index of the record in `raw`.
    """

    key: K
    value: E
    stream: str
    raw: RecordBatch
    index: int

    @property
    def topic(self) -> str:
        """The topic of the record; of a replayed dead letter, the retry topic."""
        return self.raw.topic

    @property
    def partition(self) -> int:
        return self.raw.partition

    @property
    def offset(self) -> int:
        return self.raw.offsets[self.index]

    @property
    def timestamp_ms(self) -> int:
        """Milliseconds since 1970; of a replayed dead letter, the timestamp of its origin."""
        return self.raw.timestamp(self.index)

    @property
    def headers(self) -> Headers:
        return self.raw.headers(self.index)
