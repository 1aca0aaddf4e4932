"""A flow with joins under attack: its topics, load and processes, and the check of its output."""

import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Producer
from tests.faults import joining
from tests.faults.arena import Arena, Process, wait_until
from tests.faults.committed_records import Change
from tests.faults.joining import BY_PRODUCT, LINKED, OUTER, product_of
from tests.faults.worker import EXIT_GAVE_UP
from tests.simulation.joins import LEFT, RIGHT, Keyed, Made, Timed

from localkafka.waiting import Deadline
from streamtable import Long
from streamtable.base.partitioner import partition_for
from streamtable.errors import RetryLater
from streamtable.graph.topic_check import required_topics

_KEYS = 100
_PER_SECOND = 200
_STEP_MS = 20  # of event time, from one event to the next
_LATE_MS = (0, 0, 0, 300, 2_500, 9_000)
_DECODE = Long().decode


class JoinArena(Arena):
    """The flow, in processes that run all of its groups."""

    def __init__(self, bootstrap_servers: str, folder: Path, **settings: Any) -> None:
        super().__init__(bootstrap_servers, folder, delete_topics=False, **settings)
        self.prefix = self.topics.prefix
        self.flow = joining.flow_of(self.prefix)
        self.rng = random.Random(self.seed)
        self.sent = 0
        self._now_ms = int(time.time() * 1000) - 3_600_000
        self._producer = Producer(
            {"enable.idempotence": True, "bootstrap.servers": bootstrap_servers, "linger.ms": 5}
        )

    def __enter__(self) -> Self:
        tables = {table for group in self.flow.groups for table in group.tables}
        for topic in dict.fromkeys(each for group in self.flow.groups for each in required_topics(group)):
            config = {"cleanup.policy": "compact"} if topic in tables else {}
            self.topics.create(
                topic.removeprefix(f"{self.prefix}-"), partitions=self.partitions, config=config
            )
        return self

    def start(self, name: str, failpoint: str | None = None, state: Path | None = None) -> Process:
        if name not in self.processes:
            arguments = ["--bootstrap", self.kafka.bootstrap_servers, "--prefix", self.prefix]
            self.processes[name] = Process(
                arguments, name, state or self.folder / name, self.folder / f"{name}.log", joining.__file__
            )
        self.processes[name].start(failpoint)
        return self.processes[name]

    def revive(self) -> None:
        """Restart processes that gave up after a freeze, or died at a failpoint."""
        for name, process in self.processes.items():
            if not process.running:
                ended = process.returncode
                assert ended in {EXIT_GAVE_UP, -signal.SIGKILL}, (
                    f"{name} ended with {ended}: {process.log[-2000:]}"
                )
                self.start(name)

    def feed_for(self, seconds: float) -> None:
        """Send events of both streams for this many seconds, some of them late in event time."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            for _ in range(_PER_SECOND // 20):
                self._now_ms += _STEP_MS
                late_ms = self.rng.choice(_LATE_MS)
                self._send(
                    self.rng.choice(("left", "right")),
                    b"k%d" % self.rng.randrange(_KEYS),
                    self._now_ms - late_ms,
                )
            self._producer.poll(0)
            time.sleep(1 / 20)  # the rate of the load

    def close_windows(self) -> None:
        """Send an event far ahead to each partition of both streams, which ends the waits of all others."""
        for name in ("left", "right"):
            for partition in range(self.partitions):
                keys = (b"end of %s %d" % (name.encode(), number) for number in count())
                key = next(key for key in keys if partition_for(key, self.partitions) == partition)
                self._send(name, key, self._now_ms + 60_000)
        assert self._producer.flush(60) == 0

    def _send(self, name: str, key: bytes, time_ms: int) -> None:
        self.sent += 1
        value = Long().encode(self.rng.getrandbits(40))
        partition = partition_for(key, self.partitions)
        self._producer.produce(f"{self.prefix}-{name}", value, key, partition, timestamp=time_ms)

    # ---- the check -------------------------------------------------------------------------------------------------

    def wait_all_handled(self) -> None:
        """Wait until all groups have committed all input, including that from each other."""
        before: object = None

        def quiet() -> bool:
            nonlocal before
            self.revive()
            try:
                ends = self._ends()
            except RetryLater:
                return False
            done, before = ends is not None and ends == before, ends
            return done

        wait_until(quiet, "all input is handled", 90)

    def _ends(self) -> dict[Any, int] | None:
        """Return the end offsets of all groups' inputs; None while some are not committed."""
        ends: dict[Any, int] = {}
        for group in self.flow.groups:
            places = [place for topic in group.input_topics for place in self.places(topic)]
            done = self.cluster.stable_offsets(group.name, places)
            for place, marks in self.cluster.watermarks(places).items():
                committed = done.get(place)
                at = committed.next_offset if committed else 0
                # The last record may be followed by a transaction marker.
                if at + 1 < marks.high or (at < marks.high and place.topic in self._sources):
                    return None
                ends[place] = marks.high
        return ends

    @property
    def _sources(self) -> tuple[str, str]:
        return f"{self.prefix}-left", f"{self.prefix}-right"

    def verify_joins(self) -> str:
        """Compare the output with the expected result of the committed input. Returns a summary line.

        Lone records fall due when the input has been handled, so they may come in a later commit than its offsets.
        """
        deadline = Deadline(30)
        while True:
            try:
                return self._compared()
            except AssertionError:
                if deadline.passed():
                    raise
            time.sleep(0.5)

    def _compared(self) -> str:
        left, right, both, linked = (
            self.records(f"{self.prefix}-{name}") for name in ("left", "right", "both", "linked")
        )
        pairs = 0
        for partition in range(self.partitions):
            timed = Timed(OUTER)
            for side, changes in enumerate((left[partition], right[partition])):
                for each in changes:
                    timed.apply(side, each.key, _DECODE(each.value or b""), _ms(each))
            timed.take(_made(both[partition]))
            assert not timed.left(), f"partition {partition}: {timed.left()}"
            pairs += len(both[partition])
        products = self.records(f"{self.flow.name}-{BY_PRODUCT}")
        moved = Counter((each.key, each.value) for changes in products.values() for each in changes)
        were = [each.value or b"" for changes in right.values() for each in changes]
        assert moved == Counter((product_of(_DECODE(data)).encode(), data) for data in were)
        keyed = Keyed(LINKED, {LEFT: _versions(left), RIGHT: _versions(products)})
        for partition in range(self.partitions):
            keyed.take(_made(linked[partition]))
        assert not keyed.left(), keyed.left()
        changed = sum(map(len, linked.values()))
        return f"{self.sent} events, {pairs} pairs and lone records, {changed} changes of joined rows"


def _made(changes: Sequence[Change]) -> list[Made]:
    return [Made.read(each.key, each.value, _ms(each)) for each in changes]


def _versions(topic: dict[int, list[Change]]) -> dict[bytes, list[int]]:
    found: defaultdict[bytes, list[int]] = defaultdict(list)
    for changes in topic.values():
        for each in changes:
            found[each.key].append(_DECODE(each.value or b""))
    return found


def _ms(change: Change) -> int:
    return round(change.time * 1000)
