"""Random schedules of records that fail for a while: crashes between any two steps, rebalances, rewinds. And planted faults.

The oracle: of each key, each record has one result or one dead letter, in the order of the records, whatever happens.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import streamtable_calls.held
import streamtable_calls.partition
import streamtable_calls.record_retries
from streamtable import Context, Group, Input, Json, OnError, Output, Persist, Stream, String
from streamtable.base.failpoint import COMMIT_STEPS
from streamtable_calls import Retry, retried
from streamtable_calls.partition import PartitionCalls
from streamtable_calls.record_retries import RecordRetries
from streamtable_testing import Tester

EVENTS = Stream[str, Any]("events", String(), Json())
RESULTS = Stream[str, Any]("results", String(), Json())
KEYS = ("a", "b", "c", "d", "e")
SEEDS = range(8)
MANY_SEEDS = range(8, 150)
_STEPS = 60
_ROUNDS_LEAST, _ROUNDS_MAX = 3, 60
_BAD = 9  # an event whose remainder by 11 it is fails for good


class Wrong(Exception):
    """The oracle was contradicted."""


class Schedule:
    """One random schedule.

    Args:
        seed: Decides everything.
    """

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.tester = Tester(partitions=2, commit_on_request=self.rng.random() < 0.5)
        self.events: dict[str, list[int]] = {key: [] for key in KEYS}
        self.number = 0
        self.down: set[str] = set()
        self.tried: dict[int, float] = {}  # when each event was handled for the first time
        retry = Retry(attempts=1000, on=(ConnectionError,))
        edge = Input(EVENTS, self._handle, on_error=OnError.DEAD_LETTER)
        self.group: Group[str, Any] = Group(
            "simulated",
            *retried(edge, retry, pending_max=self.rng.randint(1, 8)),
            Output(RESULTS),
            Persist(Json()),
        )

    def _handle(self, ctx: Context[str, Any], event: Any) -> None:
        ctx.set([*(ctx.value or []), event])
        ctx.emit(RESULTS, ctx.key, event)
        now = self.tester.clock.now()
        if ctx.key in self.down or (event % 4 == 1 and now < self.tried.setdefault(event, now) + 2):
            raise ConnectionError
        if event % 11 == _BAD:
            raise ValueError

    def run(self) -> None:
        """Run it to its end. Raises `Wrong`."""
        try:
            self.tester.run(self.group, members=2)
            for _ in range(_STEPS):
                self._step()
            self._heal()
            self._check()
        finally:
            self.tester.close()

    def _step(self) -> None:
        steps: dict[Callable[[], None], float] = {
            self._send: 5, self._break: 2, self._mend: 2, self._crash: 0.7, self._restart: 1, self._move: 0.5,
            self.tester.commit: 2, lambda: self.tester.advance(self.rng.random() * 3): 3,
        }  # fmt: skip
        self.rng.choices(list(steps), list(steps.values()))[0]()

    def _send(self) -> None:
        events = []
        for _ in range(self.rng.randint(1, 5)):
            key = self.rng.choice(KEYS)
            self.number += 1
            self.events[key].append(self.number)
            events.append((key, self.number))
        self.tester.emit_many(EVENTS, events)

    def _break(self) -> None:
        self.down.add(self.rng.choice(KEYS))

    def _mend(self) -> None:
        self.down.discard(self.rng.choice(KEYS))

    def _crash(self) -> None:
        number = self.rng.randrange(len(self.tester._of(self.group)))
        if self.tester._of(self.group)[number].processor is not None:
            at = self.rng.choice([None, *COMMIT_STEPS])
            self.tester.crash(self.group, at, member=number, times=1)

    def _restart(self) -> None:
        self.tester.start(self.group, disk=self.rng.random() < 0.5)

    def _move(self) -> None:
        living = [each for each in self.tester._of(self.group) if each.processor is not None]
        if len(living) == len(self.tester._of(self.group)) and len(living) > 1 and self.rng.random() < 0.5:
            self.tester.leave(self.group, self.rng.randrange(len(living)))
        elif len(living) < 4:
            self.tester.join(self.group)

    def _heal(self) -> None:
        self.down = set()
        for instance in self.tester._of(self.group):
            instance.kill_at = None
        self.tester.start(self.group)
        # After a failed commit, each record takes a commit of its own.
        for number in range(_ROUNDS_MAX):
            self.tester.advance(100)
            self.tester.commit()
            done = len(self.tester.records(RESULTS)) + len(self.tester.dead_letters(self.group))
            if number >= _ROUNDS_LEAST and done >= self.number:
                return

    def _check(self) -> None:
        table, letters = self.tester.table(self.group), self.tester.dead_letters(self.group)
        for key, events in self.events.items():
            good = [number for number in events if number % 11 != _BAD]
            found = [record.value for record in self.tester.records(RESULTS) if record.key == key]
            rows = table.get(key, [])
            failed = [int(letter.value or b"") for letter in letters if letter.key == key.encode()]
            if (found, rows, failed) != (good, good, [number for number in events if number % 11 == _BAD]):
                raise Wrong(
                    f"of {key} the results are {found}, the row {rows} and the dead letters {failed}: {events}"
                )


@pytest.mark.parametrize("seed", SEEDS)
def test_each_record_is_handled_once_in_the_order_of_its_key_whatever_happens(seed: int) -> None:
    Schedule(seed).run()


@pytest.mark.faults_long("many schedules")
@pytest.mark.parametrize("seed", MANY_SEEDS)
def test_the_same_holds_in_many_schedules(seed: int) -> None:
    Schedule(seed).run()


# ---- planted faults ----------------------------------------------------------------------------------------------------


def later_records_overtake(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(streamtable_calls.record_retries, "waits", lambda rows, timer: False)


def key_freed_too_early(patch: pytest.MonkeyPatch) -> None:
    release = streamtable_calls.held.release

    def release_and_free(rows: Any, timer: Any, now_ms: int) -> bool:
        written = release(rows, timer, now_ms)
        with pytest.MonkeyPatch.context() as empty:
            empty.setattr(rows, "scan", lambda *_, **__: iter(()), raising=False)
            release(rows, timer, now_ms)
        return written

    patch.setattr(streamtable_calls.record_retries, "release", release_and_free)


def next_record_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(streamtable_calls.record_retries, "release", lambda rows, timer, now_ms: False)
    patch.setattr(streamtable_calls.partition, "release", lambda rows, timer, now_ms: False)


def failed_attempt_not_undone(patch: pytest.MonkeyPatch) -> None:
    def handle(self: RecordRetries[Any, Any, Any], ctx: Context[Any, Any], event: Any) -> None:
        assert self.edge.handler is not None
        try:
            self.edge.handler(ctx, event)
        except ConnectionError as error:
            self._keep(ctx, error, 1.0)  # instead of after an undo

    patch.setattr(RecordRetries, "_call", handle)


def keys_left_lost_at_a_rewind(patch: pytest.MonkeyPatch) -> None:
    """The engine deletes the row of a record that it has given up itself: only the partition lets the next one follow."""
    patch.setattr(streamtable_calls.record_retries, "release", lambda rows, timer, now_ms: False)

    def forget(self: PartitionCalls) -> None:
        self._changed, self._written, self._uncommitted = [], [], set()

    patch.setattr(PartitionCalls, "undone", forget)


@pytest.mark.parametrize(
    "plant",
    [
        later_records_overtake,
        key_freed_too_early,
        next_record_forgotten,
        failed_attempt_not_undone,
        keys_left_lost_at_a_rewind,
    ],
)
def test_a_planted_fault_is_found(plant: Callable[[pytest.MonkeyPatch], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        for seed in [*SEEDS, *MANY_SEEDS]:
            try:
                Schedule(seed).run()
            except Wrong:
                return
    raise AssertionError("the fault was not found")
