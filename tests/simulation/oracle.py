"""The expected output of a group's partition for its inputs up to the committed offsets: computed independently, from the log.

The oracle reads the input topics from the broker. It shares the function that applies an event to a row with the
handlers, and no code with the engine.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Mapping
from operator import itemgetter

from tests.simulation.due import Planned, planned
from tests.simulation.jobs import Job, Row, source_id
from tests.simulation.shape import Kind

from streamtable.base.deadletter import Origin
from streamtable.base.watermarks import LATE_BEFORE, Mark
from streamtable.codec.plain import Json, Long
from streamtable.graph.group import OnError
from streamtable_testing.topic import InMemoryMessage, Partition

FAR_MS = 1 << 45
"""Timestamps of a clock that is wrong by centuries."""
_JSON = Json()
_LONG = Long()

Letter = tuple[str, int, int, int]
"""A dead letter: topic, partition and offset of its origin, and the attempt."""


class Wrong(Exception):
    """An invariant is violated; the message says which."""


def committed_records(partition: Partition, start: int, end: int) -> Iterator[InMemoryMessage]:
    """Return the committed records with start <= offset < end. Raises `Wrong` if one is still undecided."""
    records = partition.records
    for record in records[bisect_left(records, start, key=InMemoryMessage.offset) :]:
        if record.offset() >= end:
            return
        if record.transaction is None or record.transaction.committed:
            yield record
        elif record.transaction.committed is None:
            raise Wrong(f"{partition.place}@{record.offset()} was taken for committed while it was pending")


def late_before_of(record: InMemoryMessage) -> int:
    """Return the late bound in the headers of a record of a stream with watermarks. Raises `Wrong` if it has none."""
    for name, value in record.headers() or ():
        if name == LATE_BEFORE and value is not None:
            return int.from_bytes(value, "big", signed=True)
    raise Wrong(f"I8: the record at {record.offset()} does not carry whether it is late")


class Expected:
    """The expected contents of one partition of a group.

    Attributes:
        rows: The table, encoded.
        next: The next offset of each input, by topic.
        outputs: Source and key of what must have been emitted and was not seen yet, for each input in order.
        letters: The same for dead letters.
        looped: Source and key of what must have been looped back and was not seen yet.
        stream_ms: The greatest event time of each input that the group reads.
        planned: The rows and timers set by the records since the last check.
        timed: Topic, offset and stream time of the records since the last check.
    """

    def __init__(self, job: Job, partition: int) -> None:
        self._job = job
        self._partition = partition
        self._decoded: dict[bytes, Row] = {}
        self._sums: dict[bytes, int] = {}
        self.rows: dict[bytes, bytes] = {}
        self.next = dict.fromkeys(job.topics, 0)
        self.outputs: dict[int, deque[tuple[int, bytes]]] = {n: deque() for n in range(len(job.topics))}
        self.letters: dict[int, deque[Letter]] = {n: deque() for n in range(len(job.topics))}
        self.looped: set[tuple[int, bytes]] = set()
        self.events = 0
        self._handled: dict[bytes, int] = {}  # the last rows given to the handler of changes
        self._times: dict[str, int] = {}  # stream time of each input
        self._accepted: dict[tuple[str, int], int] = {}  # the stream time of each accepted event of an input
        self.stream_ms = dict.fromkeys(job.reads, -1)
        self.timed: list[tuple[str, int, int]] = []
        self.planned: list[Planned] = []
        self._producers: dict[int, Mark] = {}  # the last mark of each task that writes the input

    def advance(self, topic: str, partition: Partition, end: int) -> None:
        """Apply an input up to offset `end`. Raises `Wrong` if something there was not committed."""
        number = self._job.topics.index(topic)
        for record in committed_records(partition, self.next[topic], end):
            if self._job.carried and (mark := Mark.read(record.headers() or ())) is not None:
                self._note(topic, mark)
                continue
            self._apply(number, topic, record)
            self.events += 1
        self.next[topic] = end

    def _follow_time(self, topic: str, record: InMemoryMessage, timestamp_ms: int) -> None:
        if self._job.carried:
            late_before = late_before_of(record)
        else:
            self.stream_ms[topic] = late_before = max(self.stream_ms[topic], timestamp_ms)
        self.timed.append((topic, record.offset(), late_before))

    def _note(self, topic: str, mark: Mark) -> None:
        self._producers[mark.producer] = mark
        if len(self._producers) == mark.producers:
            waited = [each.watermark_ms for each in self._producers.values() if not each.idle]
            greatest = max(each.watermark_ms for each in self._producers.values())
            self.stream_ms[topic] = max(self.stream_ms[topic], min(waited, default=greatest))

    def _apply(self, number: int, topic: str, record: InMemoryMessage) -> None:
        key, value = record.key(), record.value()
        again = number == len(self._job.topics) - 1
        origin: Letter = (topic, self._partition, record.offset(), 1)
        timestamp_ms = record.timestamp()[1]
        if again:
            read = Origin.read(record.headers() or ())
            assert read is not None, "only dead letters are sent to the retries"
            origin = (read.topic, read.partition, read.offset, read.attempt + 1)
            timestamp_ms = read.timestamp_ms
        if topic == self._job.visits:
            return  # visited rows are checked separately
        changed = origin[0] == self._job.joined and key is not None
        if changed:
            assert key is not None
            new = None if value is None else _LONG.decode(value)
            event = self._job.change(self._handled.get(key), new)
        elif key is None or value is None or len(value) != 8 or key.startswith(b"\xff"):
            self._leave_out(number, origin, value, timestamp_ms)
            return
        else:
            event = _LONG.decode(value)
        if self._job.shape.idle_after and origin[0] in self._job.reads:
            if timestamp_ms >= FAR_MS:
                self.letters[number].append(origin)
                return
            if not again:
                self._follow_time(topic, record, timestamp_ms)
        counts_once = bool(self._job.shape.once) and origin[0] in self._job.reads
        if counts_once and self._is_repeat(origin[0], event, timestamp_ms):
            return
        if self._job.bad(event) and (not again or self._job.shape.kind is Kind.AGGREGATE):
            if self._job.shape.on_error is OnError.DEAD_LETTER:
                self.letters[number].append(origin)
            return
        if counts_once:
            self._accept(origin[0], event)
        if changed:
            self._handled.pop(key, None)
            if new is not None:
                self._handled[key] = new
        source = source_id(number, self._partition, record.offset())
        if self._job.shape.kind is Kind.AGGREGATE:
            self._sums[key] = self._sums.get(key, 0) + event
            self.rows[key] = _LONG.encode(self._sums[key])
            return
        self.outputs[number].append((source, key))
        self._plan(source, event, timestamp_ms)
        if (to := self._job.loops_to(topic, event)) is not None:
            self.looped.add((source, to.encode()))
        row = self._job.follow(self._decoded.pop(key, None), source, event)
        if row is None:
            self.rows.pop(key, None)
        else:
            self._decoded[key] = row
            self.rows[key] = _JSON.encode(row)

    def _leave_out(self, number: int, origin: Letter, value: bytes | None, timestamp_ms: int) -> None:
        self.letters[number].append(origin)
        if value is not None and len(value) == 8 and origin[0] in self._job.reads:
            self._move_time(origin[0], timestamp_ms)  # it has an id

    def _plan(self, source: int, event: int, timestamp_ms: int) -> None:
        if self._job.shape.due:
            event_time = bool(self._job.shape.idle_after)
            self.planned.append(planned(source, event, timestamp_ms, event_time=event_time))

    def _stream_time(self, topic: str, timestamp_ms: int) -> int:
        """Return the stream time after a record; timestamps are current, earlier, or years ahead."""
        before = self._times.get(topic, -1)
        return before if timestamp_ms >= FAR_MS else max(before, timestamp_ms)

    def _move_time(self, topic: str, timestamp_ms: int) -> int:
        self._times[topic] = self._stream_time(topic, timestamp_ms)
        return self._times[topic]

    def _is_repeat(self, topic: str, event: int, timestamp_ms: int) -> bool:
        now = self._move_time(topic, timestamp_ms)  # also if its handler fails
        at = self._accepted.get((topic, event))
        return at is not None and now - at <= self._job.shape.once * 1000

    def _accept(self, topic: str, event: int) -> None:
        self._accepted[topic, event] = self._times[topic]


class Replayed:
    """A replayed changelog partition: the table of a reader that reads it in order.

    Attributes:
        rows: The encoded rows at `position`.
        position: The next offset to replay.
        undecided: Transactions whose records were skipped before they had ended: they must not be committed.
    """

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self.rows: dict[bytes, bytes] = {}
        self.position = 0
        self.undecided: list[InMemoryMessage] = []
        self._former: list[tuple[int, dict[bytes, bytes]]] = [(0, {})]

    def at(self, position: int) -> Mapping[bytes, bytes]:
        """Return the table at this position, or at the last commit before it."""
        return self._former[bisect_right(self._former, position, key=itemgetter(0)) - 1][1]

    def advance(self, end: int) -> None:
        if end == self.position:
            return
        records = self._partition.records
        for record in records[bisect_left(records, self.position, key=InMemoryMessage.offset) :]:
            if record.offset() >= end:
                break
            key, value = record.key(), record.value()
            assert key is not None
            if record.transaction is not None and not record.transaction.committed:
                if record.transaction.committed is None:
                    self.undecided.append(record)
            elif value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value
        self.position = end
        self._former.append((end, dict(self.rows)))

    def at_end(self) -> dict[bytes, bytes]:
        """Return the table at the end of the changelog."""
        end = Replayed(self._partition)
        end.rows, end.position = dict(self.rows), self.position
        end.advance(self._partition.high)
        return end.rows

    def check_passed_over(self) -> None:
        """Raise `Wrong` if a record became visible below a position that was committed without it."""
        for record in self.undecided:
            if record.transaction is not None and record.transaction.committed:
                raise Wrong(
                    f"{self._partition.place}@{record.offset()} became visible after the table had passed it"
                )
        self.undecided = [r for r in self.undecided if r.transaction and r.transaction.committed is None]
