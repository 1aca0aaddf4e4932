"""The invariants after every turn, checked against the broker's own state; the numbers are the fault matrix's.

    I1  nothing is lost           I2  exactly once: table, outputs and dead letters follow from the committed input
    I3  order of each key         I4  local table = changelog, replayed = view, when quiet
    I5  no offset is committed ahead of the changelog
    I6  recovery starts where the local copy ends; positions never go back
    I7  writes of a fenced member are never visible
    I9  due rows and timers fire once, in order, and leave nothing behind
    I8  event time follows from the committed input, and never goes back

A transaction counts from the moment when it is decided, even before its markers are written.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any

from tests.simulation.due import Planned, local_rows
from tests.simulation.due_books import DueBooks
from tests.simulation.jobs import Job, source_of
from tests.simulation.oracle import Expected, Letter, Replayed, Wrong, late_before_of
from tests.simulation.shape import Kind
from tests.simulation.times import TimeBooks
from tests.simulation.trace import Trace

from streamtable.base.deadletter import Origin
from streamtable.base.types import Committed, TopicPartition
from streamtable.base.watermarks import Mark
from streamtable.codec.plain import Json, Long
from streamtable.graph.group import IDS
from streamtable.graph.once import IdChunk
from streamtable.graph.visiting import VisitProgress
from streamtable.tables.position import LocalPosition, TablePosition
from streamtable_testing.log import VirtualKafka
from streamtable_testing.topic import InMemoryMessage, Partition

DUE_STATES = ("waiting", "kept", "timers", "wall-timers")


class Books:
    """The expected and the observed state of one group.

    Attributes:
        commits: The number of observed changes of its committed offsets.
        times: The bounds of its event time; None if it does not use event time.
        named: The replayed changelogs of its named tables.
        tables: The table of each partition replayed from the changelog, when it was last quiet.
    """

    def __init__(self, job: Job, kafka: VirtualKafka, trace: Trace) -> None:
        self._job = job
        self._kafka = kafka
        self._trace = trace
        self._offsets = kafka.group(job.group.name).offsets
        self._seen: Mapping[TopicPartition, Committed] = {}
        table = kafka.topics[job.group.table.name].partitions
        self.expected = [Expected(job, number) for number in range(len(table))]
        self.replayed = [Replayed(partition) for partition in table]
        self.named = {
            name: [Replayed(p) for p in kafka.topics[job.group.named_topic(name)].partitions]
            for name in job.group.named_tables
        }
        event_time = job.group.event_time
        self.times = (
            TimeBooks(kafka, trace, event_time, job.reads, len(table), carried=job.carried)
            if event_time is not None
            else None
        )
        self._marked: dict[
            tuple[int, int], int
        ] = {}  # the last watermark of each producer in a partition of the output
        self._outputs = [Unread(p) for p in kafka.topics[job.output].partitions] if job.output else []
        due = kafka.topics.get(f"{job.group.name}-due") if job.shape.due else None
        self._fired = [Unread(p) for p in due.partitions] if due is not None else []
        self.due = [DueBooks() for _ in self._fired]
        self._letters = [Unread(p) for p in kafka.topics[job.group.dead_letters].partitions]
        self._looped = (
            [Unread(p) for p in kafka.topics[f"{job.group.name}-loop"].partitions] if job.group.loop else []
        )
        self._visits: list[tuple[str, int, set[bytes]]] = []  # run, partition, and the rows at its start
        self._visited: set[tuple[str, int, bytes]] = set()
        self._emitted: set[object] = set()  # at least once: the observed outputs and dead letters
        self.commits = 0
        self.tables: list[dict[bytes, bytes]] = []

    def check(self) -> None:
        """Check the changes since the last call. Raises `Wrong`."""
        if self.times is not None:
            self.times.look()
        for replayed in (*self.replayed, *(each for named in self.named.values() for each in named)):
            if replayed.undecided:
                replayed.check_passed_over()
        now = self._decided()
        if now == self._seen:
            if self.times is not None and any(unread.has_more for unread in self._outputs):
                self.check_outputs()  # a commit of marks alone changes no offset
            return
        before, self._seen = self._seen, dict(now)
        changed = sorted({place.partition for place in now if now[place] != before.get(place)})
        for partition in changed:
            self.commits += 1
            self._follow(partition, now, before)
        self.check_outputs()

    def check_outputs(self) -> None:
        """Compare the emitted with the expected records (I2, I3, I7)."""
        for number, unread in enumerate(self._outputs):
            for record in unread.take():
                if (mark := Mark.read(record.headers() or ())) is not None:
                    self._marked[number, mark.producer] = mark.watermark_ms
                    continue
                source = Long().decode(record.value() or b"")
                self._check_marked(number, source_of(source)[1], record)
                if self._job.topics[source_of(source)[0]] == self._job.visits:
                    self._note_visited(source, record.key() or b"")
                    continue
                self._emit(self.expected[number].outputs, source_of(source)[0], (source, record.key()))
                if self.times is not None:
                    topic_number, of_partition, offset = source_of(source)
                    self.times.check_late_before(
                        self._job.topics[topic_number], of_partition, offset, record.headers() or ()
                    )
        for producer in {producer for _, producer in self._marked}:
            said = {self._marked.get((number, producer)) for number in range(len(self._outputs))}
            if len(said) > 1:  # a transaction counts as a whole
                raise Wrong(
                    f"I8: producer {producer} has said {sorted(map(str, said))} in partitions of its output"
                )
        for number, unread in enumerate(self._letters):
            for record in unread.take():
                letter = self._letter_of(record)
                topic = self._job.topics.index(letter[0]) if letter[3] == 1 else len(self._job.topics) - 1
                self._emit(self.expected[number].letters, topic, letter)
        for number, unread in enumerate(self._fired):
            fired = [Planned(*Json().decode(record.value() or b"")) for record in unread.take()]  # type: ignore[misc] # a list
            now_ms = int(self._kafka.clock.now() * 1000)
            self.due[number].follow(self.expected[number].planned, fired, now_ms)
            self.expected[number].planned.clear()
        self._check_looped()
        for expected in self.expected:
            queues: list[Any] = [*expected.outputs.values(), *expected.letters.values()]
            for queue in queues:
                if not self._job.exact:
                    missing = [what for what in queue if what not in self._emitted]
                    queue.clear()
                else:
                    missing = list(queue)
                if missing:
                    raise Wrong(f"I1: committed, but not emitted: {missing[:3]}")

    def _check_marked(self, number: int, producer: int, record: InMemoryMessage) -> None:
        """Check that no record after a producer's watermark had earlier windows open (I8)."""
        marked = self._marked.get((number, producer))
        if marked is not None and late_before_of(record) < marked:
            raise Wrong(
                f"I8: {number}@{record.offset()} was late before {late_before_of(record)} only, and comes behind the "
                f"watermark {marked} of {producer}"
            )

    def _check_looped(self) -> None:
        found = [
            (Long().decode(record.value() or b""), record.key() or b"")
            for unread in self._looped
            for record in unread.take()
        ]
        for what in found:
            waiting = self.expected[source_of(what[0])[1]].looped
            if what not in waiting and self._job.exact:
                raise Wrong(f"I2: {what} was looped back, and was not to be")
            waiting.discard(what)
            self._emitted.add(what)
        for expected in self.expected:
            if missing := expected.looped - self._emitted:
                raise Wrong(f"I1: committed, but not looped back: {sorted(missing)[:3]}")
            expected.looped.clear()

    def visit_begins(self, run: str, partition: int) -> None:
        self._visits.append((run, partition, set(self.replayed[partition].rows)))

    def _note_visited(self, source: int, key: bytes) -> None:
        number, partition, offset = source_of(source)
        records = self._kafka.topics[self._job.topics[number]].partitions[partition].records
        progress = next(VisitProgress.decode(r.value()) for r in records if r.offset() == offset)
        what = (progress.run if progress else "", partition, key)
        if what in self._visited:
            raise Wrong(f"I2: {what} was visited twice")
        self._visited.add(what)

    def _check_visits(self) -> None:
        for run, partition, keys in self._visits:
            if left := {key for key in keys if (run, partition, key) not in self._visited}:
                raise Wrong(f"I1: run {run} has not visited {sorted(left)[:3]} of {partition}")

    def check_joined(self, position: int, partition: int, rows: Mapping[bytes, bytes]) -> None:
        """Compare a local partition of the joined table with its topic, up to its position (I4)."""
        assert self._job.joined is not None
        expected = joined_rows(self._kafka.topics[self._job.joined].partitions[partition].records, position)
        if rows != expected:
            raise Wrong(f"I4: joined table {partition} at {position}: {_difference(rows, expected)}")

    def check_copy(self, position: int, partition: int, rows: Mapping[bytes, bytes]) -> None:
        """Compare a local copy of the table with the changelog as it was at the same position (I4)."""
        expected = self.replayed[partition].at(position)
        if rows != expected:
            raise Wrong(
                f"I4: the local copy of table {partition} at {position}: {_difference(rows, expected)}"
            )

    def check_named(self, name: str, position: int, partition: int, rows: Mapping[bytes, bytes]) -> None:
        """Compare a local partition of a named table with its changelog at the same position (I4)."""
        expected = self.named[name][partition].at(position)
        if name == IDS:
            expected = _with_ids(expected)
        elif name in DUE_STATES:
            expected = local_rows(name, expected)
        if rows != expected:
            raise Wrong(f"I4: named table {name} {partition} at {position}: {_difference(rows, expected)}")

    def check_end(self) -> None:
        """Check at rest that exactly the sent events were applied."""
        self.check()
        self.check_outputs()
        for topic in self._job.topics:
            for partition in self._kafka.topics[topic].partitions:
                events = (each for each in partition.committed() if Mark.read(each.headers() or ()) is None)
                last = max((record.offset() for record in events), default=-1)
                if self.expected[partition.place.partition].next[topic] <= last:
                    raise Wrong(f"I1: {partition.place}@{last} was never committed")
        self._check_visits()
        self.tables = [replayed.at_end() for replayed in self.replayed]
        for number, table in enumerate(self.tables):
            self._compare(number, table, f"at the end of the changelog {number}")

    def due_left(self) -> str:
        """Describe the rows that are still to fire or to expire; empty if there are none."""
        for number, books in enumerate(self.due):
            if books.pending:
                return f"{len(books.pending)} are to fire in {number}, for example {next(iter(books.pending.items()))}"
        for name in DUE_STATES if self.due else ():
            for changelog in self.named.get(name, ()):
                if rows := changelog.at_end():
                    return f"{len(rows)} rows are left in {name}, for example {next(iter(rows))!r}"
        return ""

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _decided(self) -> Mapping[TopicPartition, Committed]:
        """Return the committed offsets, even if the transaction marker is still missing."""
        found: Mapping[TopicPartition, Committed] = self._offsets.committed
        for transaction, offsets in self._offsets._pending.items():
            if transaction.committed:
                found = {**found, **offsets}
        return found

    def _follow(
        self,
        partition: int,
        now: Mapping[TopicPartition, Committed],
        before: Mapping[TopicPartition, Committed],
    ) -> None:
        """Check that the table has changed in accordance with a partition's offsets."""
        expected, replayed = self.expected[partition], self.replayed[partition]
        positions = set()
        tables: Mapping[str, int] = {}
        for topic in self._job.topics:
            place = TopicPartition(topic, partition)
            if (committed := now.get(place)) is None:
                raise Wrong(f"I5: the offsets of some inputs were committed, but none of {place}")
            was = before.get(place)
            if was is not None and committed.next_offset < was.next_offset and self._job.exact:
                raise Wrong(f"I6: {place} went back from {was.next_offset} to {committed.next_offset}")
            position = TablePosition.decode(committed.metadata)
            if position is None or position.exact is not self._job.exact:
                raise Wrong(f"I5: {place} was committed with the metadata {committed.metadata!r}")
            positions.add(position.changelog)
            tables = position.tables
            if committed.next_offset > expected.next[topic]:
                expected.advance(
                    topic, self._kafka.topics[topic].partitions[partition], committed.next_offset
                )
        if self.times is not None:
            self.times.committed(partition, now, expected)
        (position_now,) = positions if len(positions) == 1 else (-1,)
        self._trace.add(
            self._job.group.name, "committed", partition, list(expected.next.values()), "table", position_now
        )
        if position_now < replayed.position and self._job.exact:
            raise Wrong(f"I6: table {partition} went from {replayed.position} to {sorted(positions)}")
        high = self._kafka.topics[self._job.group.table.name].partitions[partition].high
        if position_now > high:
            raise Wrong(
                f"I5: table {partition} is recorded at {position_now}, but its changelog ends at {high}"
            )
        replayed.advance(max(position_now, replayed.position))
        for name, changelogs in self.named.items():
            changelogs[partition].advance(max(tables[name], changelogs[partition].position))
        self._compare(partition, replayed.rows, f"after the commit at {position_now} of table {partition}")

    def _compare(self, partition: int, found: Mapping[bytes, bytes], when: str) -> None:
        """Check that the table in the log is the result of the committed input (I2; at least once: includes all of it, I1)."""
        expected = self.expected[partition].rows
        if self._job.exact:
            if found != expected:
                raise Wrong(f"I2 {when}: {_difference(found, expected)}")
            return
        decode: Any = (Long() if self._job.shape.kind is Kind.AGGREGATE else Json()).decode
        for key, row in expected.items():
            have, want = (decode(found[key]) if key in found else None), decode(row)
            if have is None or (have < want if isinstance(want, int) else not set(want) <= set(have)):
                raise Wrong(f"I1 {when}: {key!r} is {have}, and must have at least {want}")

    def _emit(self, queues: Mapping[int, Any], topic: int, what: object) -> None:
        """Check that an emitted record is the next one of its source; with at least once, it may be a repeat."""
        if not self._job.exact:
            self._emitted.add(what)
            return
        queue = queues[topic]
        if not queue or queue[0] != what:
            raise Wrong(f"I2: {what} was emitted, and next was to be {queue[0] if queue else 'nothing'}")
        queue.popleft()

    @staticmethod
    def _letter_of(record: InMemoryMessage) -> Letter:
        origin = Origin.read(record.headers() or ())
        if origin is None:
            raise Wrong(f"dead letter {record.offset()} does not name its origin")
        return (origin.topic, origin.partition, origin.offset, origin.attempt)


def joined_rows(records: Iterable[InMemoryMessage], position: int) -> Mapping[bytes, bytes]:
    """Return the table that results from the records below a position."""
    rows: dict[bytes, bytes] = {}
    for record in records:
        key, value = record.key(), record.value()
        if record.offset() >= position or key is None:
            continue
        if value is None:
            rows.pop(key, None)
        else:
            rows[key] = value
    return rows


class Unread:
    """Yields the committed records of a partition once, as soon as their transaction is decided."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._next = 0  # offset
        self._undecided: list[InMemoryMessage] = []

    @property
    def has_more(self) -> bool:
        """Whether records were written, or their transaction decided, since the last `take`."""
        return self._partition.high > self._next or any(
            each.transaction and each.transaction.committed is not None for each in self._undecided
        )

    def take(self) -> list[InMemoryMessage]:
        records = self._partition.records
        waiting = self._undecided + records[bisect_left(records, self._next, key=InMemoryMessage.offset) :]
        self._next = self._partition.high
        self._undecided = [r for r in waiting if r.transaction and r.transaction.committed is None]
        return [r for r in waiting if r.transaction is None or r.transaction.committed]


def check_plan(local: LocalPosition | None, known: int, read_from: int, low: int, *, discarded: bool) -> None:
    """Check a recovery that is about to start (I6).

    Args:
        local: The position in the store.
        known: The position that this disk is known to have.
        read_from: The offset where the recovery starts.
        low: The first offset of the changelog.
        discarded: Whether the local copy was discarded.
    """
    at = local.changelog if local is not None else 0
    if at < known:
        raise Wrong(f"I6: the local copy went back from {known} to {at}")
    if not discarded and read_from != max(at, low):
        raise Wrong(f"I6: the local copy ends at {at}, and recovery starts at {read_from}")


def _with_ids(records: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
    """Return the local rows that result from the changelog of accepted ids."""
    rows = {b"r" + key: value for key, value in records.items()}
    for key, value in sorted(records.items()):
        topic, separator, _ = key.partition(b"\0")
        for each, at in IdChunk.decode(value).each() if separator else ():
            rows[b"i" + topic + b"\0" + each] = at.to_bytes(8, "big", signed=True)
    return rows


def _difference(found: Mapping[bytes, bytes], expected: Mapping[bytes, bytes]) -> str:
    keys = sorted(key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key))
    key = keys[0]
    return f"{len(keys)} rows differ; {key!r} is {found.get(key)!r}, and must be {expected.get(key)!r}"
