"""The invariants of a flow with joins, checked after each turn; `invariants` has the ones of other groups."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from tests.simulation.invariants import Unread
from tests.simulation.jobs import Job
from tests.simulation.joins import LEFT, RIGHT, Keyed, Made, Timed
from tests.simulation.oracle import Replayed, Wrong, committed_records
from tests.simulation.shape import JoinShape
from tests.simulation.trace import Trace

from streamtable.base.deadletter import Origin
from streamtable.base.types import Committed, TopicPartition
from streamtable.codec.plain import Long
from streamtable.engine.due.chunks import entries_in, entry_of
from streamtable.tables.position import TablePosition
from streamtable_testing.log import VirtualKafka
from streamtable_testing.topic import InMemoryMessage


@dataclass
class Applied:
    """The committed state of a partition of a group.

    Attributes:
        next: The next offset of each input.
        letters: The offsets of expected dead letters, by input.
    """

    next: dict[str, int]
    letters: set[tuple[str, int]]


class JoinBooks:
    """The expected and the observed state of one group of a flow. The first group's also checks the flow's output.

    Args:
        job: The group.
        kafka: The broker.
        trace: Gets a line for each commit.
        shape: The join.
    """

    def __init__(self, job: Job, kafka: VirtualKafka, trace: Trace, shape: JoinShape) -> None:
        self._job = job
        self._kafka = kafka
        self._trace = trace
        self._shape = shape
        self._offsets = kafka.group(job.group.name).offsets
        self._seen: Mapping[TopicPartition, Committed] = {}
        partitions = range(len(kafka.topics[job.topics[0]].partitions))
        self.expected = [Applied(dict.fromkeys(job.topics, 0), set()) for _ in partitions]
        self.named = {
            name: [Replayed(each) for each in kafka.topics[job.group.named_topic(name)].partitions]
            for name in job.group.named_tables
        }
        self.times = None
        self.commits = 0
        self._letters = [Unread(each) for each in kafka.topics[job.group.dead_letters].partitions]
        out = kafka.topics[job.output].partitions if job.output else []
        self._written = [Unread(each) for each in out]
        self._timed = [Timed(shape) for _ in partitions] if shape.timed else []
        self._sent: dict[str, dict[bytes, list[int]]] = {LEFT: defaultdict(list), RIGHT: defaultdict(list)}
        # The inputs of a foreign-key join are in two groups, which commit independently, so sent events count.
        followed = (LEFT, RIGHT) if job.output and not shape.timed else ()
        self._sources = [
            (topic, Unread(each)) for topic in followed for each in kafka.topics[topic].partitions
        ]
        self._keyed = Keyed(shape, self._sent)

    def check(self) -> None:
        """Check what has changed since the last turn. Raises `Wrong`."""
        self._note_sent()
        for replayed in (each for named in self.named.values() for each in named):
            if replayed.undecided:
                replayed.check_passed_over()
        now = self._decided()
        if now == self._seen:
            return
        before, self._seen = self._seen, dict(now)
        for partition in sorted({place.partition for place in now if now[place] != before.get(place)}):
            self.commits += 1
            self._follow(partition, now, before)
        self._check_written()

    def check_named(self, name: str, position: int, partition: int, rows: Mapping[bytes, bytes]) -> None:
        """Compare a local partition of a named table with its changelog at the same position (I4)."""
        expected = self.named[name][partition].at(position)
        due = next((each.due for each in self._job.group.all_states if each.name == name), None)
        if due is not None:
            entries = {
                b"d" + entry_of(at_ms, key): b""
                for key, value in expected.items()
                if (at_ms := due.when(key, b"" if due.by_key else value)) is not None
            }
            expected = {b"r" + key: value for key, value in expected.items()} | entries
            rows = _without_chunks(rows)
        if rows != expected:
            wrong = sorted(key for key in rows.keys() | expected.keys() if rows.get(key) != expected.get(key))
            raise Wrong(f"I4: table {name} {partition} at {position} differs at {wrong[:3]}")

    def check_end(self) -> None:
        """Check at rest that all sent events are applied, and all due records are written."""
        self.check()
        for topic in self._job.topics:
            for partition in self._kafka.topics[topic].partitions:
                last = max((record.offset() for record in partition.committed()), default=-1)
                if self.expected[partition.place.partition].next[topic] <= last:
                    raise Wrong(f"I1: {partition.place}@{last} was never committed")
        for number, expected in enumerate(self.expected):
            if expected.letters:
                raise Wrong(f"I1: {sorted(expected.letters)[:3]} of {number} are not in the dead letters")
        if left := self.due_left():
            raise Wrong(f"I1: {left}")

    def due_left(self) -> str:
        """Describe the missing records; empty if there are none."""
        if not self._written:
            return ""
        if not self._timed:
            return self._keyed.left()
        return next(filter(None, (each.left() for each in self._timed)), "")

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _decided(self) -> Mapping[TopicPartition, Committed]:
        """Return the committed offsets, also of transactions whose marker is still missing."""
        found: Mapping[TopicPartition, Committed] = self._offsets.committed
        for transaction, offsets in self._offsets._pending.items():
            if transaction.committed:
                found = {**found, **offsets}
        return found

    def _follow(
        self,
        number: int,
        now: Mapping[TopicPartition, Committed],
        before: Mapping[TopicPartition, Committed],
    ) -> None:
        """Apply the inputs of a partition up to its committed offsets, which have changed."""
        expected, tables = self.expected[number], dict[str, int]()
        for topic in self._job.topics:
            place = TopicPartition(topic, number)
            if (committed := now.get(place)) is None:
                raise Wrong(f"I5: the offsets of some inputs were committed, but none of {place}")
            was = before.get(place)
            if was is not None and committed.next_offset < was.next_offset:
                raise Wrong(f"I6: {place} went back from {was.next_offset} to {committed.next_offset}")
            position = TablePosition.decode(committed.metadata)
            if position is None or position.tables.keys() != self.named.keys():
                raise Wrong(f"I5: {place} was committed with the metadata {committed.metadata!r}")
            tables = dict(position.tables)
            partition = self._kafka.topics[topic].partitions[number]
            for record in committed_records(partition, expected.next[topic], committed.next_offset):
                self._apply(number, topic, record)
            expected.next[topic] = max(expected.next[topic], committed.next_offset)
        self._trace.add(
            self._job.group.name, "committed", number, list(expected.next.values()), "tables", tables
        )
        for name, changelogs in self.named.items():
            if tables[name] < changelogs[number].position:
                raise Wrong(
                    f"I6: table {name} {number} went from {changelogs[number].position} to {tables[name]}"
                )
            changelogs[number].advance(tables[name])

    def _apply(self, number: int, topic: str, record: InMemoryMessage) -> None:
        if topic not in {LEFT, RIGHT} or not self._timed:
            return
        value, time_ms = Long().decode(record.value() or b""), record.timestamp()[1]
        if not self._timed[number].apply(int(topic == RIGHT), record.key() or b"", value, time_ms):
            self.expected[number].letters.add((topic, record.offset()))

    def _check_written(self) -> None:
        for number, unread in enumerate(self._written):
            found = [
                Made.read(record.key() or b"", record.value(), record.timestamp()[1])
                for record in unread.take()
            ]
            if self._timed:
                self._timed[number].take(found)
            else:
                self._keyed.take(found)
        for number, unread in enumerate(self._letters):
            for record in unread.take():
                origin = Origin.read(record.headers() or ())
                what = ("", -1) if origin is None else (origin.topic, origin.offset)
                if what not in self.expected[number].letters:
                    raise Wrong(f"I2: {what} is in the dead letters of {number}")
                self.expected[number].letters.discard(what)

    def _note_sent(self) -> None:
        for topic, unread in self._sources:
            for record in unread.take():
                self._sent[topic][record.key() or b""].append(Long().decode(record.value() or b""))


def _without_chunks(rows: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
    """Return local rows with an entry for each row that a chunk names; those that are gone do not count."""
    named = [entry for key, chunk in rows.items() if key[:1] == b"c" for entry in entries_in(chunk)]
    entries = {b"d" + entry: b"" for entry in named if b"r" + entry[8:] in rows}
    return {key: row for key, row in rows.items() if key[:1] != b"c"} | entries
