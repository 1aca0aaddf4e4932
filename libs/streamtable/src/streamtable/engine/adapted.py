"""Adapts a `CustomTask` to the engine's member: it adds outputs, marker positions, the group's table and the metadata."""

from collections.abc import Awaitable, Iterable, Mapping
from typing import Any

import orjson

from streamtable.base.clock import Clock
from streamtable.base.deadletter import RECORD_OVERHEAD_BYTES
from streamtable.base.types import Headers, NextOffset, RecordBatch
from streamtable.engine.basetask import MOVED_SECONDS, BaseTask, CommitServices, Recovered, Work
from streamtable.engine.output.buffer import OutputBuffer
from streamtable.errors import Migrated, RewindNeeded, StoreCorrupted
from streamtable.graph.custom_task import (
    AT_ONCE,
    CommitDue,
    CustomTask,
    Prepared,
    TaskServices,
    Written,
)
from streamtable.graph.group import Group
from streamtable.tables.position import LocalPosition, TablePosition


class AdaptedTask(BaseTask):
    """One partition of a group whose records go to a `CustomTask`.

    Args:
        group: The graph.
        recovered: The partition, with its tables complete.
        task: The custom task that handles its records.
        clock: The clock.
    """

    def __init__(self, group: Group[Any, Any], recovered: Recovered, task: CustomTask, clock: Clock) -> None:
        super().__init__(group, recovered)
        self.task = task
        self._clock = clock
        self._table = recovered.topics[group.table.name] if group.persist else None
        self._store = self.stores[group.table.name] if group.persist else None
        self._outputs = OutputBuffer(group, recovered.topics, clock)
        self._prepared: Prepared | None = None
        self._written: Written | None = None
        self._passed = dict(self.committed_offsets)  # where each input continues after fed records
        self._moved_at = 0.0  # when a position passed markers for the first time since the last commit
        task.rewind(self.committed_offsets)
        self.uncommitted |= task.due() is not None

    # ---- records in ------------------------------------------------------------------------------------------------

    @property
    def next_offsets(self) -> Mapping[str, NextOffset]:
        """The next offset of each input after the last commit; records that were fed since are not handled yet."""
        return self.committed_offsets

    def process(self, records: RecordBatch, since: float | None = None) -> int:
        self.task.feed(records, self._clock.monotonic() if since is None else since)
        self._pass(records.topic, records.last_offset + 1)
        return len(records)

    def passed(self, topic: str, offset: int, now: float) -> None:
        if not self._moved:
            self._moved_at = now
        self._pass(topic, offset)

    def _pass(self, topic: str, offset: int) -> None:
        self._passed[topic] = max(NextOffset(offset), self._passed[topic])

    # ---- before the commit -----------------------------------------------------------------------------------------

    @property
    def _moved(self) -> bool:
        """Whether positions have only moved past transaction markers and nothing else waits for a commit."""
        return self._passed != self.committed_offsets and self.task.due() is None

    @property
    def dirty(self) -> bool:
        return not self.must_recover and (
            self.uncommitted or self._passed != self.committed_offsets or self.task.due() is not None
        )

    @property
    def commit_due(self) -> CommitDue:
        if self.uncommitted:
            return CommitDue(AT_ONCE)
        return self.task.due() or CommitDue(self._moved_at + MOVED_SECONDS)

    def last_work(self, services: CommitServices) -> Awaitable[None] | None:
        """Let the task prepare its next commit. Returns the awaitable of its asynchronous part, if it has one."""
        given = TaskServices(
            self._outputs,
            lambda context: self._send_ahead(services, context),
            self._get,
            self._table.max_message_bytes - RECORD_OVERHEAD_BYTES if self._table is not None else None,
            services.watermarks,
            self.topic_ids,
            self._passed,
            services.records_max,
        )
        try:
            prepared = self.task.prepare(given)
        except (Migrated, StoreCorrupted) as error:
            raise self._noted(error) from error
        if prepared is None or isinstance(prepared, Prepared):
            self._keep(prepared)
            return None
        return self._awaited(prepared)

    async def _awaited(self, prepared: Awaitable[Prepared]) -> None:
        try:
            self._keep(await prepared)
        except (Migrated, StoreCorrupted) as error:
            raise self._noted(error) from error

    def _keep(self, prepared: Prepared | None) -> None:
        self._prepared = prepared
        if prepared is not None and prepared.traced:
            self.traced.append(prepared.traced)

    def _noted(self, error: Migrated | StoreCorrupted) -> Migrated | RewindNeeded:
        if isinstance(error, Migrated):
            self.must_recover = True
            return error
        self.failure = error  # the engine discards the store, and loads it from the changelog
        return RewindNeeded("the local store is damaged", topic=self._table.name if self._table else None)

    def _get(self, key: bytes) -> bytes | None:
        return None if self._store is None else self._store.get(key)

    def _send_ahead(self, services: CommitServices, context: Headers) -> None:
        records, letters = self._outputs.records, self._outputs.dead_letters
        self._outputs.forget()
        self._outputs.dead_letters = letters
        services.send_ahead(records, context)

    # ---- commit and rewind -----------------------------------------------------------------------------------------

    def work(self) -> Work:
        prepared = self._prepared
        moved = self._passed if self._moved else self.committed_offsets
        offsets = moved if prepared is None else prepared.next_offsets
        return Work(
            self,
            self._outputs.records,
            list(prepared.changes) if prepared is not None else [],
            dict(offsets),
            self._outputs.dead_letters,
        )

    def write_ahead(self, work: Work) -> None:
        del work
        self.must_recover = True  # until Kafka has committed, it is not known whether it counts
        self._written = self.task.write()
        self.must_recover = self._written is not None and self._written.ahead

    def _metadata(self, position: TablePosition) -> str:
        if self._written is None:
            return super()._metadata(position)
        document = dict(self._written.metadata)
        if position.seen is not None:
            document["seen"] = position.seen.encode()
        return orjson.dumps(document).decode() if document else ""

    def committed(self, work: Work, position: TablePosition) -> None:
        self._write_rows(work.changes, position.changelog, work.next_offsets)
        # Not before the write: if that failed for good, `save` must not say that the store is as far as Kafka.
        self.changelog_position = position.changelog
        self.committed_offsets = dict(work.next_offsets)
        self.must_recover = not self.task.applied(self.committed_offsets)
        self.uncommitted = False
        self._prepared = None
        self._outputs.forget()

    def rewind(self) -> Mapping[str, NextOffset]:
        self._prepared = None
        self._outputs.forget()
        self._passed = dict(self.committed_offsets)
        self.task.rewind(self.committed_offsets)
        return self.committed_offsets

    def save(self) -> None:
        self._write_rows((), self.changelog_position, self.committed_offsets)

    def _write_rows(
        self,
        rows: Iterable[tuple[bytes, bytes | None]],
        changelog_position: int,
        next_offsets: Mapping[str, NextOffset],
    ) -> None:
        if self._table is None or self._store is None:
            return
        now = self._clock.now()
        position = LocalPosition.of(self._table, changelog_position, now, inputs=next_offsets)
        try:
            self._store.write(rows, position.encode())
        except StoreCorrupted as error:
            self.failure = error  # the commit stands, and so do the commits of the other tasks
