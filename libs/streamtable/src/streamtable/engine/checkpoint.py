"""The order of a commit. This module alone decides it; everything that is promised about crashes follows from it.

Exactly once: outputs and changelog are produced and flushed, the input offsets (with the changelog's position as
metadata) join the same transaction, the transaction is committed, and only then each store is written, in one
atomic write of rows and position. The store is thus never ahead of Kafka; a crash leaves it behind by one commit at
most, and recovery reads those few records from the changelog.

Tasks over other stores write them before all this (`BaseTask.write_ahead`), and say in the metadata what of it counts.

At least once: the same without a transaction; every record's delivery is looked at before the offsets are committed.
"""

from collections.abc import Mapping, Sequence
from itertools import islice

from streamtable.deadletter import OutputRecord
from streamtable.engine.basetask import BaseTask, Work
from streamtable.engine.budget import STEP_SECONDS_MAX
from streamtable.engine.failpoint import Failpoint
from streamtable.engine.position import Guarantee
from streamtable.errors import OutcomeUnknown, RetryLater, StateLost, StreamtableError
from streamtable.ports import GroupConsumer, Outbox
from streamtable.tracing import CONTEXTS_MAX, UNTRACED, Fact, Tracer, carrying
from streamtable.types import Committed, Headers, TopicPartition

_COMMIT_TRIES = 5


class Checkpoint:
    """Commits the work of tasks.

    Args:
        consumer: the member whose offsets are committed.
        outbox: transactional for exactly once, plain for at least once.
        guarantee: which of the two.
        failpoint: called between any two steps.
        tracer: told of each commit. Every output, and the last row of each partition, carries its context.
    """

    def __init__(
        self,
        consumer: GroupConsumer,
        outbox: Outbox,
        guarantee: Guarantee,
        failpoint: Failpoint,
        tracer: Tracer = UNTRACED,
    ) -> None:
        self._consumer = consumer
        self._outbox = outbox
        self._exactly_once = guarantee is Guarantee.EXACTLY_ONCE
        self._reached = failpoint
        self._tracer = tracer
        self._open = False  # a transaction has begun and not ended

    def commit(self, tasks: Sequence[BaseTask]) -> Sequence[Work]:
        """Commit everything that these tasks have done. Returns what that was.

        Raises:
            RewindNeeded: certainly not committed. The transaction, if any, must be aborted.
            Migrated: the same, because the group has moved on.
            OutcomeUnknown: only the broker knows.
            Unencodable: a record is larger than the client or its topic accepts, though it was measured before.
            StateLost: a changelog ends before what it held at the last commit.
            Fatal: as it says.
        """
        sources = [context for task in tasks for context in task.traced]
        for task in tasks:
            task.traced.clear()
        with self._tracer.commit(tasks[0].group.name, sources[:CONTEXTS_MAX]) as span:
            try:
                works = self._commit(tasks, span.headers)
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
        positions = self._flush(works)
        offsets = {
            place: committed
            for work in works
            for place, committed in work.task.offsets(
                work, positions[work.task.partition], exact=self._exactly_once
            ).items()
        }
        if self._exactly_once:
            self._outbox.send_offsets(offsets, self._consumer.membership())
            self._reached("offsets-sent")
            self._outbox.commit(STEP_SECONDS_MAX)
            self._open = False
        else:
            self._reached("offsets-sent")
            self._commit_plainly(offsets)
        self._reached("committed")
        for work in works:
            work.task.committed(work, positions[work.task.partition])
            self._reached("store-written")
        return works

    def send_ahead(self, records: Sequence[OutputRecord]) -> None:
        """Send records in the transaction of the commit to come (begun now, if it is not), and wait until Kafka has them.

        Raises:
            RewindNeeded: one of them has failed. The transaction, if any, must be aborted.
        """
        self._begin()
        self._send(records)
        self._outbox.flush(STEP_SECONDS_MAX)

    def abort(self) -> None:
        """End the transaction of a commit that failed, if there is one. Raises `OutcomeUnknown`, `Fatal`."""
        if self._open:
            self._outbox.abort(STEP_SECONDS_MAX)
            self._open = False

    def _begin(self) -> None:
        if self._exactly_once and not self._open:
            self._outbox.begin()
            self._open = True
        self._reached("begun")

    def _send(self, records: Sequence[OutputRecord], context: Headers = ()) -> None:
        produce = self._outbox.produce
        for topic, key, value, headers, timestamp_ms, partition in records:
            sent = carrying(headers, context) if context else headers
            produce(topic, key, value, partition=partition, headers=sent, timestamp_ms=timestamp_ms)

    def _produce(self, works: Sequence[Work], context: Headers) -> None:
        for work in works:
            self._send(work.outputs, context)
        self._reached("outputs-produced")
        for work in works:
            if work.changes:
                # The offset of the last one is where the table stands after this commit.
                table = work.task.group.table.name
                self._outbox.produce_rows(table, work.task.partition, work.changes, context)
        self._reached("changelog-produced")

    def _flush(self, works: Sequence[Work]) -> dict[int, int]:
        """Returns the changelog position of each task's partition after the commit."""
        last = self._outbox.flush(STEP_SECONDS_MAX)
        self._reached("flushed")
        positions = {work.task.partition: work.task.changelog_position for work in works}
        for work in works:
            if work.changes:
                place = TopicPartition(work.task.group.table.name, work.task.partition)
                if last[place] < positions[place.partition]:
                    raise StateLost(
                        f"the changelog has gone back: a record was stored at {last[place]}, but the table stands at "
                        f"{positions[place.partition]}. The topic was deleted and created again, or has lost its "
                        "end: restore it, or rebuild the table",
                        topic=place.topic,
                        partition=place.partition,
                        offset=last[place],
                    )
                positions[place.partition] = last[place] + 1
        return positions

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


def _facts(works: Sequence[Work]) -> dict[str, Fact]:
    """What a span says of a commit. Bytes are those of keys, values and headers."""
    offsets = (
        f"{topic}[{work.task.partition}]@{offset}"
        for work in works
        for topic, offset in work.next_offsets.items()
    )
    rows = [row for work in works for row in work.changes]
    outputs = [record for work in works for record in work.outputs]
    return {
        "outcome": "committed",
        "offsets": list(islice(offsets, CONTEXTS_MAX)),
        "rows": len(rows),
        "outputs": len(outputs),
        "dead_letters": sum(work.dead_letters for work in works),
        "bytes": sum(len(key) + len(value or b"") for key, value in rows)
        + sum(each.size for each in outputs),
    }
