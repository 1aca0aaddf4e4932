"""A view of a table under random sequences of faults: deleted records, damaged disks, restarts.

The simulation itself acts as the group that keeps the table: it writes rows and commits offsets with the table's
position. So a schedule takes a few milliseconds, and the expected content of a view is exactly the replay of the topic.
"""

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tests.simulation.disk import Disk, Mounted

from streamtable.base.topics import Table
from streamtable.base.types import Ack, Committed, NextOffset, TopicPartition
from streamtable.codec.plain import Long, String
from streamtable.errors import ChangesMissed, NotReady, RetryLater
from streamtable.observe import Metrics
from streamtable.tables.position import TablePosition
from streamtable.views.updater import ViewUpdater
from streamtable.views.view import View
from streamtable_testing.clock import VirtualClock
from streamtable_testing.log import DAY_MS, VirtualKafka

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamtable.views.watch import Watch

TABLE = Table("g-table", String(), Long(), group="g")
STEPS = 120
_TOMBSTONES_SOON_MS = 20_000  # shorter than some absences, so that a copy can be too old
_QUIET_TURNS = 200
_WEIGHTS = {
    "turn": 40.0,
    "event": 12.0,
    "commit": 12.0,
    "wait": 10.0,
    "drain": 8.0,
    "look_away": 2.0,
    "delete_records": 2.0,
    "compact": 2.0,
    "restart": 2.0,
    "damage": 1.0,
}


class Broken(Exception):
    """The view violates a guarantee; the message says which."""


@dataclass(frozen=True)
class Event:
    """An emitted event, and the row that the group will make of it."""

    ack: Ack
    key: str
    row: int | None


class Watcher:
    """A client that keeps a copy of the rows as documented: watch, then read; again when changes were missed."""

    def __init__(self, view: View[str, int]) -> None:
        self._view = view
        self._watch: Watch[str, int] = view.watch()
        self.rows: dict[str, int] | None = None

    def drain(self) -> None:
        """Apply the pending changes. Raises `NotReady` while the rows cannot be read."""
        if self.rows is None:
            self.rows = dict(self._view.range())
        try:
            while (change := self._watch.next(0)) is not None:
                if change.value is None:
                    self.rows.pop(change.key, None)
                else:
                    self.rows[change.key] = change.value
        except ChangesMissed:
            self._watch, self.rows = self._view.watch(), None


class ViewWorld:
    """A schedule, drawn from its seed. `run` raises `Broken`.

    Args:
        seed: The seed of the schedule.
        metrics: Metrics that are never read.
    """

    def __init__(self, seed: int, metrics: Metrics) -> None:
        self.rng = Random(seed)
        self.clock = VirtualClock()
        self.kafka = VirtualKafka(self.clock)
        self.metrics = metrics
        self.partitions = self.rng.randint(1, 3)
        self.kafka.create_topic("in", self.partitions)
        retention = self.rng.choice((_TOMBSTONES_SOON_MS, DAY_MS))
        self.kafka.create_topic("g-table", self.partitions, compacted=True, delete_retention_ms=retention)
        self.disk = Disk(self.clock.now)
        self.waiting: list[list[Event]] = [[] for _ in range(self.partitions)]
        self.events: list[Event] = []
        self.shown_at: dict[Ack, int] = {}  # the table's offset after the row of each event
        self.trace: list[str] = []
        self.count = self.waited = self.reloads = 0
        weights = {name: weight * self.rng.random() for name, weight in _WEIGHTS.items()}
        self.weights = {**weights, "turn": _WEIGHTS["turn"]}
        for _ in range(self.rng.choice((0, 4, 12))):
            self.rng.choice((self.event, self.commit))()
        self.start()
        # The copy is empty, so the view may not answer before it has all of this.
        self.first_ends: list[int] | None = [each.high for each in self.kafka.topics["g-table"].partitions]

    def run(self) -> None:
        names, weights = list(self.weights), list(self.weights.values())
        # Two records at a time, so that a copy is loaded in many turns.
        with patch("streamtable.tables.changelog_reader._POLL_RECORDS", 2):
            for number in range(STEPS):
                step = self.rng.choices(names, weights)[0]
                getattr(self, step)()
                if number % 40 == 39:
                    self.quiet()

    # ---- steps -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        dead = [False]
        self.dead = dead
        self.updater = ViewUpdater(
            self.kafka, Mounted(self.disk, lambda: dead[0]), self.clock, self.metrics, "view"
        )
        self.view: View[str, int] = View(TABLE, self.updater)
        self.updater.open()
        self.turns: Iterator[float] = self.updater.turns()
        self.watcher = Watcher(self.view)

    def turn(self) -> None:
        self.clock.advance(self.rng.choice((0.01, 0.3, 1.1)))
        next(self.turns, None)
        if (failure := self.view._replicas._failure) is not None:
            raise Broken(f"the view has stopped: {failure}")
        if self.first_ends is not None and self.view.ready:
            positions = {partition: at.offset for partition, at in self.view.position().items()}
            if any(positions[partition] < end for partition, end in enumerate(self.first_ends)):
                raise Broken(f"the view answers at {positions}, and its table ended at {self.first_ends}")
            self.first_ends = None

    def event(self) -> None:
        self.count += 1
        key = f"k{self.rng.randrange(6)}"
        ack = self.kafka.append("in", key.encode(), b"")
        event = Event(ack, key, None if self.rng.random() < 0.3 else self.count)
        self.waiting[ack.partition].append(event)
        self.events.append(event)

    def commit(self) -> None:
        """Let the group handle some events of a partition."""
        partition = self.rng.randrange(self.partitions)
        waiting = self.waiting[partition]
        todo = [waiting.pop(0) for _ in range(min(len(waiting), self.rng.randint(1, 3)))]
        for event in todo:
            value = None if event.row is None else Long().encode(event.row)
            self.shown_at[event.ack] = self.kafka.append("g-table", event.key.encode(), value).offset + 1
        if todo:
            written = TablePosition(self.kafka.topics["g-table"].partitions[partition].high, exact=True)
            offset = Committed(NextOffset(todo[-1].ack.offset + 1), written.encode())
            self.kafka.group("g").offsets.committed[TopicPartition("in", partition)] = offset

    def wait(self) -> None:
        """Read one's own write: after the wait, the view must show it."""
        if not self.events:
            return
        event = self.rng.choice(self.events[-6:])
        try:
            self.view.wait_for(event.ack, 0)
        except RetryLater:
            return
        self.waited += 1
        if event.ack not in self.shown_at:
            raise Broken(f"wait_for returned for {event}, which the group has not handled")
        position = self.view.position()[event.ack.partition].offset
        if position < self.shown_at[event.ack]:
            raise Broken(
                f"wait_for returned for {event}, which is at {self.shown_at[event.ack]}; the view is at {position}"
            )

    def drain(self) -> None:
        try:
            self.watcher.drain()
        except NotReady:
            return

    def look_away(self) -> None:
        self.clock.advance(self.rng.choice((2.0, 40.0)))

    def delete_records(self) -> None:
        partition = self.rng.choice(self.kafka.topics["g-table"].partitions)
        before = self.rng.randint(partition.low, partition.high)
        self.trace.append(f"{partition.place}: records below {before} of {partition.high} are deleted")
        self.kafka.delete_records(partition.place, before)

    def compact(self) -> None:
        self.kafka.compact("g-table")

    def damage(self) -> None:
        place = ("g-table", self.rng.randrange(self.partitions))
        if place in self.disk.present():
            self.trace.append(f"{place} is damaged")
            self.disk.damaged.add(place)

    def restart(self) -> None:
        """Kill or stop the view, and restart it at once or after the table has changed."""
        self.trace.append("the view is restarted")
        if self.rng.random() < 0.5:
            self.dead[0] = True
            self.disk.crash(lose_bulk=self.rng.random() < 0.5)
            close: Any = self.turns
            close.close()
        else:
            self.updater.close()
        self.first_ends = None
        for _ in range(self.rng.choice((0, 0, 3))):
            self.rng.choice((self.event, self.commit, self.delete_records, self.compact))()
        if self.rng.random() < 0.3:
            # So long that tombstones can be compacted away, and with them all traces of the keys.
            for step in (self.event, self.commit, self.commit, self.compact, self.look_away, self.compact):
                step()
        self.start()

    # ---- the guarantees --------------------------------------------------------------------------------------------

    def quiet(self) -> None:
        """Check at rest that the view and its watcher equal the replayed topic."""
        self.disk.damaged.clear()
        for number in range(_QUIET_TURNS):
            self.turn()
            self.drain()
            whole = self.view.ready and not self.view.lag() and self.watcher.rows is not None
            if whole and number > 20:  # the view has checked the topic since
                break
        else:
            raise Broken(f"the view is not ready after {_QUIET_TURNS} turns")
        truth = self._replayed()
        found = dict(self.view.range())
        if found != truth:
            raise Broken(f"the view has {found}, and the topic {truth}")
        if self.watcher.rows != truth:
            raise Broken(f"a watcher has {self.watcher.rows}, and the topic {truth}")

    def _replayed(self) -> dict[str, int]:
        rows: dict[str, int] = {}
        for _, record in self.kafka.records("g-table"):
            key, value = (record.key() or b"").decode(), record.value()
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = Long().decode(value)
        return rows
