"""The order of a commit. Only this module decides it; every promise about crashes follows from it.

Exactly once: outputs and changelog are produced and flushed, the input offsets (with the changelog's position as
metadata) join the same transaction, the transaction is committed, and only then each store is written, in one
atomic write of rows and position. The store is thus never ahead of Kafka; a crash leaves it behind by one commit at
most, and recovery reads those few records from the changelog.

Tasks over other stores write them before all this (`BaseTask.write_ahead`), and say in the metadata what of it counts.

At least once: the same without a transaction; every record's delivery is looked at before the offsets are committed,
and before the rows of named tables are sent.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from streamtable.base.deadletter import OutputRecord
from streamtable.base.failpoint import Failpoint
from streamtable.base.ports import GroupConsumer, TransactionalProducer
from streamtable.base.tracing import CONTEXTS_MAX, UNTRACED, Fact, Tracer, carrying
from streamtable.base.types import Committed, Guarantee, Headers, TopicPartition
from streamtable.engine.basetask import BaseTask, Work
from streamtable.engine.commit.budget import STEP_SECONDS
from streamtable.errors import OutcomeUnknown, RetryLater, SerializationError, StateLost, StreamtableError
from streamtable.tables.position import TablePosition

_COMMIT_TRIES = 5


class OutputRefused(StreamtableError):
    """Kafka refuses records of a commit permanently, so the commit certainly did not happen.

    Args:
        reason: The error that Kafka has returned.
        outputs: The indexes of the refused records in `Work.outputs`, as far as they are known, by partition of the group.
    """

    def __init__(self, reason: StreamtableError, outputs: Mapping[int, Sequence[int]]) -> None:
        super().__init__(reason.message, topic=reason.topic, partition=reason.partition)
        self.reason = reason
        self.outputs = outputs


@dataclass(eq=False)
class Checkpoint:
    """Commits the work of tasks.

    Args:
        consumer: The member whose offsets are committed.
        producer: Transactional for exactly once, plain for at least once.
        guarantee: Exactly once or at least once.
        failpoint: Called between any two steps.
        tracer: Traces each commit. Every output, and the last row of each partition, carries its context.
        step_seconds: The seconds that flush, commit and abort may take, each. May change between commits.
    """

    _consumer: GroupConsumer
    _producer: TransactionalProducer
    _guarantee: Guarantee
    _reached: Failpoint
    tracer: Tracer = UNTRACED
    step_seconds: float = STEP_SECONDS

    def __post_init__(self) -> None:
        self._exactly_once = self._guarantee is Guarantee.EXACTLY_ONCE
        self._open = False  # a transaction has begun and not ended
        # Outputs of the commit that is being made.
        self._refused: defaultdict[int, list[int]] = defaultdict(list)

    def commit(self, tasks: Sequence[BaseTask]) -> Sequence[Work]:
        """Commit everything that these tasks have done. Returns their work.

        Raises:
            RewindNeeded: Certainly not committed. The transaction, if any, must be aborted.
            Migrated: The same, because the group has moved on.
            OutcomeUnknown: Only the broker knows.
            OutputRefused: The broker or the client refuses a record, though it was checked before. The transaction,
                if any, must be aborted.
            StateLost: A changelog ends before the end that it had at the last commit.
            Fatal: The process must stop; the message says why.
        """
        sources = [context for task in tasks for context in task.traced]
        for task in tasks:
            task.traced.clear()
        with self.tracer.commit(tasks[0].group.name, sources[:CONTEXTS_MAX]) as span:
            self._refused.clear()
            try:
                works = self._commit(tasks, span.headers)
            except SerializationError as error:
                span.note(outcome="undone")
                raise OutputRefused(error, dict(self._refused)) from error
            except StreamtableError as error:
                span.note(outcome="unknown" if isinstance(error, OutcomeUnknown) else "undone")
                raise
            if span.headers:
                span.note(**_facts(works))
        return works

    def _commit(self, tasks: Sequence[BaseTask], context: Headers) -> Sequence[Work]:
        works = [task.work() for task in tasks]
        for work in works:
            work.task.write_ahead(work)
        self._begin()
        self._produce(works, context)
        positions = self._flush(works, context)
        offsets = {
            place: committed
            for work in works
            for place, committed in work.task.offsets(work, positions[work.task.partition]).items()
        }
        if self._exactly_once:
            self._producer.send_offsets(offsets, self._consumer.membership())
            self._reached("offsets-sent")
            self._producer.commit(self.step_seconds)
            self._open = False
        else:
            self._reached("offsets-sent")
            self._commit_plainly(offsets)
        self._reached("committed")
        for work in works:
            work.task.committed(work, positions[work.task.partition])
            self._reached("store-written")
        return works

    def send_ahead(self, records: Sequence[OutputRecord], context: Headers = ()) -> None:
        """Send records in the transaction of the next commit (begun now if there is none) and wait until Kafka has them.

        Raises:
            RewindNeeded: One of them has failed. The transaction, if any, must be aborted.
        """
        self._begin()
        self._send(records, context)
        self._producer.flush(self.step_seconds)

    def abort(self) -> None:
        """Abort the transaction of a commit that failed, if there is one. Raises `OutcomeUnknown`, `Fatal`."""
        if self._open:
            self._producer.abort(self.step_seconds)
            self._open = False

    def _begin(self) -> None:
        if self._exactly_once and not self._open:
            self._producer.begin()
            self._open = True
        self._reached("begun")

    def _send(self, records: Sequence[OutputRecord], context: Headers = ()) -> None:
        if context:
            records = [each._replace(headers=carrying(each.headers, context)) for each in records]
        self._producer.produce_records(records)

    def _send_traced(self, work: Work, context: Headers) -> None:
        """Send records and note each that is refused."""
        refused = self._refused[work.task.partition]
        for index, record in enumerate(work.outputs):
            topic, key, value, headers, timestamp_ms, partition = record
            try:
                self._producer.produce(
                    topic,
                    key,
                    value,
                    partition=partition,
                    headers=carrying(headers, context) if context else headers,
                    timestamp_ms=timestamp_ms,
                    refused=lambda _, index=index: refused.append(index),  # type: ignore[misc] # bound now
                )
            except SerializationError:
                refused.append(index)
                raise

    def _produce(self, works: Sequence[Work], context: Headers) -> None:
        for work in works:
            if work.traced:
                self._send_traced(work, context)
            else:
                self._send(work.outputs, context)
            if self._exactly_once:
                self._send(work.marks)
        self._reached("outputs-produced")
        for work in works:
            if work.changes:
                # The offset of the last one is where the table stands after this commit.
                table = work.task.group.table.name
                self._producer.produce_rows(table, work.task.partition, work.changes, context)
        if self._exactly_once:
            self._produce_named(works, context)
        self._reached("changelog-produced")

    def _produce_named(self, works: Sequence[Work], context: Headers) -> None:
        for work in works:
            for name, changes in work.named.items():
                topic = work.task.group.named_topic(name)
                self._producer.produce_rows(topic, work.task.partition, changes, context)

    def _flush(self, works: Sequence[Work], context: Headers) -> dict[int, TablePosition]:
        """Wait for all records. Returns the positions of the tables of each task's partition after the commit."""
        last = dict(self._producer.flush(self.step_seconds))
        if not self._exactly_once and any(work.named or work.marks for work in works):
            # What says that an event was handled must not be stored without what came of it: a crash in between
            # would lose the event. The same goes for a mark behind which the event would be late.
            self._produce_named(works, context)
            for work in works:
                self._send(work.marks)
            last |= self._producer.flush(self.step_seconds)
        self._reached("flushed")
        return {work.task.partition: self._position(work, last) for work in works}

    def _position(self, work: Work, last: Mapping[TopicPartition, int]) -> TablePosition:
        task = work.task
        changelog, named = task.changelog_position, dict(task.named_positions)
        if work.changes:
            changelog = _after(last, TopicPartition(task.group.table.name, task.partition), changelog)
        for name in work.named:
            place = TopicPartition(task.group.named_topic(name), task.partition)
            named[name] = _after(last, place, named[name])
        return TablePosition(changelog, self._exactly_once, named)

    def _commit_plainly(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        for tries_left in reversed(range(_COMMIT_TRIES)):
            try:
                self._consumer.commit(offsets)
            except RetryLater as error:
                # It may have happened; committing the same offsets again is harmless.
                if not tries_left:
                    raise OutcomeUnknown(f"the offsets were not acknowledged: {error.message}") from error
            else:
                return


def _after(last: Mapping[TopicPartition, int], place: TopicPartition, before: int) -> int:
    """Return the changelog position of a table after its last record. Raises `StateLost`."""
    if last[place] < before:
        raise StateLost(
            f"the changelog has gone back: a record was stored at {last[place]}, but the table stands at {before}. The "
            "topic was deleted and created again, or has lost its end: restore it, or rebuild the table"
        ).at(*place, last[place])
    return last[place] + 1


def _facts(works: Sequence[Work]) -> dict[str, Fact]:
    """Return the attributes of a commit's span. Bytes count keys, values and headers."""
    offsets = (
        f"{topic}[{work.task.partition}]@{offset}"
        for work in works
        for topic, offset in work.next_offsets.items()
    )
    rows = [row for work in works for row in work.changes]
    named = [row for work in works for changes in work.named.values() for row in changes]
    outputs = [record for work in works for record in work.outputs]
    return {
        "outcome": "committed",
        "offsets": list(islice(offsets, CONTEXTS_MAX)),
        "rows": len(rows),
        "outputs": len(outputs),
        "dead_letters": sum(len(work.dead_letters) for work in works),
        "bytes": sum(len(key) + len(value or b"") for key, value in (*rows, *named))
        + sum(each.size for each in outputs),
    }
