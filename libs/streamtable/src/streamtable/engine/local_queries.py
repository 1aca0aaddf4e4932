"""Queries of the rows of the partitions whose tasks run in a process, as committed, by callers outside of the engine.

A partition is answered for while its task runs here. The task's store holds committed rows alone, one thread writes it and any
may read. Each read then checks that the task is still assigned: rows that were read while the partition moved are dropped.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

from streamtable.base.clock import Clock
from streamtable.base.decoding import decoded
from streamtable.base.keys import spans_of
from streamtable.base.ports import Store, TopicInfo
from streamtable.base.topics import Table, hash_of_rows
from streamtable.engine.assignment import Assignment
from streamtable.engine.basetask import BaseTask
from streamtable.errors import GraphError, NotReady, PartitionNotAssigned, RetryLater, StoreCorrupted
from streamtable.graph.group import Group
from streamtable.tables.indexed_rows import RowsOf

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

_ROWS_AT_ONCE = 256  # then the store is let go of, so that a slow reader does not hold up a rebalance


class Freshness(NamedTuple):
    """The freshness of the rows of a partition whose task runs in a process.

    Attributes:
        offset: The rows are complete below this offset in the table's topic: the offset of the last commit.
        age_seconds: The seconds since the last commit of the partition, or since its task started. A busy partition commits
            every `commit_interval`; a partition without records does not commit, and has no newer rows.
    """

    offset: int
    age_seconds: float


class LocalAnswer(NamedTuple, Generic[V]):
    """A committed row of a partition whose task runs in this process, with its freshness.

    Attributes:
        value: The row; None if the key has none.
        partition: The partition of the key.
        offset: As in `Freshness`.
        age_seconds: As in `Freshness`.
    """

    value: V | None
    partition: int
    offset: int
    age_seconds: float


class LocalQueries:
    """Answers questions about the tables of a group. Any thread.

    Args:
        group: The graph.
        topics: Its topics, as the broker describes them.
        assignment: The partitions whose tasks run here.
        clock: The clock of the tasks.
    """

    def __init__(
        self, group: Group[Any, Any], topics: Mapping[str, TopicInfo], assignment: Assignment, clock: Clock
    ) -> None:
        self._group, self._tables = group, frozenset(group.tables)
        self._custom = any(edge.custom is not None for edge in group.inputs)
        self._topics = topics
        self._assignment = assignment
        self._clock = clock
        self._names = {group.named_topic(name): name for name in group.named_tables}
        self._indexed = {group.named_topic(state.name) for state in group.all_states if state.due is not None}

    def get(self, table: Table[K, V], key: K, partition: int | None = None) -> LocalAnswer[V]:
        """Return the row of a key. As `Processor.get`."""
        raw = table.key.encode(key)
        number = self._partition_of(table, raw) if partition is None else partition
        task = self._task(table, number)
        found = self._freshness(table, task)  # before the row, so that the row is at least as new
        data = self._read(table, task, lambda rows: rows.get(raw))
        value = None if data is None else decoded(table.value, data, table.name, number, raw)
        return LocalAnswer(value, number, found.offset, found.age_seconds)

    def range(
        self, table: Table[K, V], start: K | None = None, end: K | None = None, partition: int | None = None
    ) -> Iterator[tuple[K, V]]:
        """Return the rows in a range of keys. As `Processor.range`."""
        numbers = sorted(self._assignment.tasks) if partition is None else [partition]
        tasks = [self._task(table, number) for number in numbers]
        spans = spans_of(table.key, start, end, table.name)
        return (row for task in tasks for span in spans for row in self._scan(table, task, *span))

    def freshness(self, table: Table[Any, Any]) -> Mapping[int, Freshness]:
        """Return the freshness of the rows, by partition. As `Processor.freshness`."""
        self._check_kept(table)
        return {number: self._freshness(table, task) for number, task in list(self._assignment.tasks.items())}

    # ---- inside ------------------------------------------------------------------------------------------------------

    def _scan(
        self, table: Table[K, V], task: BaseTask, start: bytes | None, end: bytes | None
    ) -> Iterator[tuple[K, V]]:
        def next_rows(rows: Store | RowsOf) -> list[tuple[bytes, bytes]]:
            with rows.scan(start, end) as found:
                return list(islice(found, _ROWS_AT_ONCE))

        while True:
            self._check_assigned(table, task)
            read = self._read(table, task, next_rows)
            for key, data in read:
                place = table.name, task.partition, key
                yield decoded(table.key, key, *place), decoded(table.value, data, *place)
            if len(read) < _ROWS_AT_ONCE:
                return
            start = read[-1][0] + b"\0"

    def _partition_of(self, table: Table[Any, Any], key: bytes) -> int:
        self._check_kept(table)
        return hash_of_rows(table)(key) % self._topics[table.name].partitions

    def _task(self, table: Table[Any, Any], partition: int) -> BaseTask:
        self._check_kept(table)
        task = self._assignment.tasks.get(partition)
        if task is None:
            raise self._refusal(table, partition)
        if task.failure is not None:
            raise NotReady(
                f"partition {partition} of {table.name!r} is damaged here and restored from its changelog"
            )
        return task

    def _check_assigned(self, table: Table[Any, Any], task: BaseTask) -> None:
        if self._assignment.tasks.get(task.partition) is not task:
            raise self._refusal(table, task.partition)

    def _refusal(self, table: Table[Any, Any], partition: int) -> NotReady | PartitionNotAssigned:
        if (left := self._assignment.recovering.get(partition)) is not None:
            return NotReady(
                f"partition {partition} of {table.name!r} is being restored here: {left} changelog offsets are left"
            )
        return PartitionNotAssigned(self._group.name, table.name, partition, tuple(self._assignment.tasks))

    def _check_kept(self, table: Table[Any, Any]) -> None:
        if self._custom:
            raise GraphError(
                f"group {self._group.name!r} keeps its rows by tasks of its own kind: ask a view of {table.name!r}"
            )
        if table.name not in self._tables:
            tables = ", ".join(self._group.tables) or "none"
            raise GraphError(
                f"group {self._group.name!r} does not keep the table {table.name!r}: its tables are {tables}"
            )

    def _read(self, table: Table[Any, Any], task: BaseTask, read: Callable[[Store | RowsOf], T]) -> T:
        """Return what is read of the rows of a task, if the task is still assigned after that."""
        store = task.stores[table.name]
        try:
            found = read(RowsOf(store) if table.name in self._indexed else store)
        except (RetryLater, StoreCorrupted) as error:
            self._check_assigned(table, task)
            place = f"partition {task.partition} of {table.name!r}"
            raise NotReady(f"{place} cannot be read here: {error.message}") from error
        self._check_assigned(table, task)
        return found

    def _freshness(self, table: Table[Any, Any], task: BaseTask) -> Freshness:
        name = self._names.get(table.name)
        offset = task.changelog_position if name is None else task.named_positions[name]
        return Freshness(offset, max(0.0, self._clock.monotonic() - task.committed_at))
