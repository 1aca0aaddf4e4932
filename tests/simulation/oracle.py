"""What a partition of a group must have made of its inputs up to its committed offsets: computed apart, from the log.

The oracle reads the input topics as they stand in the broker. It shares with the engine's handlers the function that
makes a row of an event, and nothing of the engine.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Mapping
from operator import itemgetter

from tests.simulation.jobs import Job, Row, source_id
from tests.simulation.shape import Kind

from streamtable.codec.plain import Json, Long
from streamtable.deadletter import Origin
from streamtable.graph import OnError
from streamtable_testing.topic import Partition, Record

_JSON = Json()
_LONG = Long()

Letter = tuple[str, int, int, int]
"""A dead letter: topic, partition and offset of its origin, and the attempt."""


class Wrong(Exception):
    """Something is not as promised; the message says what."""


def committed_records(partition: Partition, start: int, end: int) -> Iterator[Record]:
    """Records with start <= offset < end that are committed. Raises `Wrong` if one is neither that nor aborted yet."""
    records = partition.records
    for record in records[bisect_left(records, start, key=Record.offset) :]:
        if record.offset() >= end:
            return
        if record.transaction is None or record.transaction.committed:
            yield record
        elif record.transaction.committed is None:
            raise Wrong(f"{partition.place}@{record.offset()} was taken for committed while it was pending")


class Expected:
    """What one partition of a group must hold.

    Attributes:
        rows: the table, encoded.
        next: the next offset of each input, by topic.
        outputs: what must have been emitted and has not been seen yet: source and key, for each input in order.
        letters: the same of dead letters.
        looped: what must have been looped back and has not been seen yet: source and key.
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
        self._joined: dict[bytes, int] = {}

    def advance(self, topic: str, partition: Partition, end: int) -> None:
        """Apply an input up to offset `end`. Raises `Wrong` if something there was not committed."""
        number = self._job.topics.index(topic)
        for record in committed_records(partition, self.next[topic], end):
            self._apply(number, topic, record)
            self.events += 1
        self.next[topic] = end

    def _apply(self, number: int, topic: str, record: Record) -> None:
        key, value = record.key(), record.value()
        again = number == len(self._job.topics) - 1
        origin: Letter = (topic, self._partition, record.offset(), 1)
        if again:
            read = Origin.read(record.headers() or ())
            assert read is not None, "only dead letters are sent to the retries"
            origin = (read.topic, read.partition, read.offset, read.attempt + 1)
        if topic == self._job.visits:
            return  # what they have visited is looked at apart
        if origin[0] == self._job.joined and key is not None:
            event = self._change(key, value, again=again)
        elif key is None or value is None or len(value) != 8 or key.startswith(b"\xff"):
            self.letters[number].append(origin)
            return
        else:
            event = _LONG.decode(value)
        if self._job.bad(event) and (not again or self._job.shape.kind is Kind.AGGREGATE):
            if self._job.shape.on_error is OnError.DEAD_LETTER:
                self.letters[number].append(origin)
            return
        source = source_id(number, self._partition, record.offset())
        if self._job.shape.kind is Kind.AGGREGATE:
            self._sums[key] = self._sums.get(key, 0) + event
            self.rows[key] = _LONG.encode(self._sums[key])
            return
        self.outputs[number].append((source, key))
        if (to := self._job.loops_to(topic, event)) is not None:
            self.looped.add((source, to.encode()))
        row = self._job.follow(self._decoded.pop(key, None), source, event)
        if row is None:
            self.rows.pop(key, None)
        else:
            self._decoded[key] = row
            self.rows[key] = _JSON.encode(row)

    def _change(self, key: bytes, value: bytes | None, *, again: bool) -> int:
        """What the handler makes of a change of the joined table."""
        new = None if value is None else _LONG.decode(value)
        if again:
            return self._job.change(None, new)
        old = self._joined.pop(key, None)
        if new is not None:
            self._joined[key] = new
        return self._job.change(old, new)


class Replayed:
    """A changelog partition, replayed: the table as whoever reads it in order has it.

    Attributes:
        rows: at `position`, encoded.
        position: up to where.
        undecided: transactions whose records were passed over before they had ended: they must not be committed.
    """

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self.rows: dict[bytes, bytes] = {}
        self.position = 0
        self.undecided: list[Record] = []
        self._former: list[tuple[int, dict[bytes, bytes]]] = [(0, {})]

    def at(self, position: int) -> Mapping[bytes, bytes]:
        """The table as it was at this position, or at the last commit before it."""
        return self._former[bisect_right(self._former, position, key=itemgetter(0)) - 1][1]

    def advance(self, end: int) -> None:
        if end == self.position:
            return
        records = self._partition.records
        for record in records[bisect_left(records, self.position, key=Record.offset) :]:
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
        """The table at the end of the changelog."""
        end = Replayed(self._partition)
        end.rows, end.position = dict(self.rows), self.position
        end.advance(self._partition.high)
        return end.rows

    def check_passed_over(self) -> None:
        """Raises `Wrong` if a record became visible below a position that was committed without it."""
        for record in self.undecided:
            if record.transaction is not None and record.transaction.committed:
                raise Wrong(
                    f"{self._partition.place}@{record.offset()} became visible after the table had passed it"
                )
        self.undecided = [r for r in self.undecided if r.transaction and r.transaction.committed is None]
