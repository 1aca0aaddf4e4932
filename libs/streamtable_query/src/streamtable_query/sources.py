"""Sources of the answers of a process: its processors, and the copies that they keep for others."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal, NamedTuple, Protocol, cast, runtime_checkable

from streamtable import Bytes, PartitionNotAssigned, Processor, Table
from streamtable.base.clock import Clock, SystemClock
from streamtable.errors import GraphError, NotReady
from streamtable.tables.replica import PartitionReplica
from streamtable_query.copies import ReplicaRows, reading

PAGE_ROWS: Final = 1_000
PAGE_BYTES: Final = 1_000_000

Kind = Literal["task", "standby", "view"]


class Replicas(Protocol):
    """The method of a processor that this package calls beside the public ones."""

    def replica(self, table: str, partition: int) -> PartitionReplica | None:
        """Return the replica of a partition whose task does not run here; None: there is none."""


class FoundRows(NamedTuple):
    """The encoded rows of some keys of a partition.

    Attributes:
        values: A row for each key; None if the key has none.
        offset: The rows hold everything below this offset in the table's topic.
        age_seconds: A copy had everything that was committed this many seconds ago. Of a task: since its last commit.
        kind: The source that they were read from.
    """

    values: Sequence[bytes | None]
    offset: int
    age_seconds: float
    kind: Kind


@dataclass(frozen=True, slots=True)
class Page:
    """Encoded rows in the order of keys; `more`: the range may have further ones. The others are as in `FoundRows`."""

    entries: Sequence[tuple[bytes, bytes]]
    more: bool
    offset: int
    age_seconds: float
    kind: Kind

    @classmethod
    def of(cls, rows: Iterable[tuple[bytes, bytes]], offset: int, age_seconds: float, kind: Kind) -> "Page":
        """Return the first rows, as many as a response may hold."""
        entries, size = [], 0
        for key, value in islice(rows, PAGE_ROWS):
            entries.append((key, value))
            size += len(key) + len(value)
            if size >= PAGE_BYTES:
                break
        return cls(entries, len(entries) == PAGE_ROWS or size >= PAGE_BYTES, offset, age_seconds, kind)


@runtime_checkable
class RowSource(Protocol):
    """Answers for some partitions of the tables of a group. Any thread."""

    @property
    def group(self) -> str:
        """The name of the consumer group whose members have the partitions."""

    def topic_id(self, table: str) -> str:
        """Return the id of a table's topic. Raises `NotReady`, `GraphError`."""

    def get(self, table: str, partition: int, keys: Sequence[bytes], stale_ok: float | None) -> FoundRows:
        """Return the rows of keys of a partition.

        Args:
            table: The name of the table.
            partition: The partition.
            keys: The encoded keys.
            stale_ok: A copy may answer, if it is no older than this, in seconds; None: what the source relies on by itself.

        Raises:
            PartitionNotAssigned: The partition is in another process, or in none.
            NotReady: It is loading here, or too old.
            GraphError: There is no such table.
        """

    def page(
        self, table: str, partition: int, start: bytes | None, end: bytes | None, stale_ok: float | None
    ) -> Page:
        """Return the first rows of a range of encoded keys. Raises like `get`."""


class ProcessorSource:
    """Answers from the tasks of a processor, and from its standby copies if the caller allows it; a `RowSource`."""

    def __init__(self, processor: Processor, clock: Clock | None = None) -> None:
        self._processor = processor
        self._clock = clock or SystemClock()
        group = processor.group
        # Made once: a table checks its codecs when it is made, which takes longer than reading a row.
        self._tables = {name: Table(name, Bytes(), Bytes()) for name in group.tables}
        self._indexed = {group.named_topic(state.name) for state in group.all_states if state.due is not None}

    @property
    def group(self) -> str:
        return self._processor.group.name

    def topic_id(self, table: str) -> str:
        self._table(table)
        if table not in self._processor.topics:
            raise NotReady(f"the processor of group {self.group!r} has not joined its group")
        return self._processor.topics[table].topic_id

    def get(self, table: str, partition: int, keys: Sequence[bytes], stale_ok: float | None) -> FoundRows:
        asked = self._table(table)
        try:
            found = [self._processor.get(asked, key, partition=partition) for key in keys]
        except (PartitionNotAssigned, NotReady) as error:
            with self._copied(table, partition, stale_ok, error) as copied:
                values = copied.rows.get_many(keys)
            return FoundRows(values, copied.offset, copied.age_seconds, "standby")
        offset = min((each.offset for each in found), default=0)
        age = max((each.age_seconds for each in found), default=0.0)
        return FoundRows([each.value for each in found], offset, age, "task")

    def page(
        self, table: str, partition: int, start: bytes | None, end: bytes | None, stale_ok: float | None
    ) -> Page:
        asked = self._table(table)
        try:
            # Before the rows, so that the rows are at least as new. Any key will do.
            known = self._processor.get(asked, b"", partition=partition)
            rows = self._processor.range(asked, start, end, partition=partition)
            return Page.of(rows, known.offset, known.age_seconds, "task")
        except (PartitionNotAssigned, NotReady) as error:
            with self._copied(table, partition, stale_ok, error) as copied:
                return page_of(copied, start, end, "standby")

    def _table(self, name: str) -> Table[bytes, bytes]:
        """Return the table with bytes: the caller has the codecs, and a row that cannot be decoded is the caller's error."""
        if name not in self._tables:
            raise GraphError(
                f"group {self.group!r} does not keep the table {name!r}: its tables are {', '.join(self._tables) or 'none'}"
            )
        return self._tables[name]

    @contextmanager
    def _copied(
        self, table: str, partition: int, stale_ok: float | None, refusal: Exception
    ) -> Iterator[ReplicaRows]:
        """Return the rows of the standby copy, as `reading` does. Raises the refusal of the task if there is no such copy."""
        copy = None if stale_ok is None else cast("Replicas", self._processor).replica(table, partition)
        if copy is None or stale_ok is None:
            raise refusal
        try:
            with reading(copy, stale_ok, self._clock, indexed=table in self._indexed) as copied:
                yield copied
        except NotReady as error:
            raise error from refusal


def page_of(copied: ReplicaRows, start: bytes | None, end: bytes | None, kind: Kind) -> Page:
    """Return the first rows of a range of a replica."""
    with copied.rows.scan(start, end) as found:
        return Page.of(found, copied.offset, copied.age_seconds, kind)
