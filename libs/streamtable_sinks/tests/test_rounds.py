"""Random rounds of a sink: kills at every step, lost requests and answers, writes that arrive late, processes that come and go.

The oracle: each record is applied once, in the order of its partition, or is in the dead letters, and never both. Rounds without a
part of the argument must break it, else they show nothing.
"""

import os
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import pytest

from streamtable import Long, Stream, String
from streamtable.errors import Migrated, Rejected, RetryLater
from streamtable_sinks import MemoryTarget, Sink, SinkChange, SinkPartition, TakenPartition, task
from streamtable_sinks.mark import Unknown
from streamtable_testing import Tester

EVENTS = Stream("events", String(), Long())
STEPS: Final = (
    "ledger-read",
    "ledger-written",
    "batch-processed",
    "rows-written",
    "begun",
    "offsets-sent",
    "committed",
)
PARTITIONS: Final = 2
ACTIONS: Final = 40
ROUNDS: Final = 10
ROUNDS_OF_A_COUNTER_TEST: Final = 60
Late = tuple[SinkPartition, int, int | None, int, Sequence[SinkChange]]


class Hostile(MemoryTarget):
    """Loses requests and answers, lets lost requests arrive late, and refuses each seventh value until it is mended."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.chance = chance
        self.late: list[Late] = []
        self.calm = False
        self.mended = False

    def take(self, place: SinkPartition, owner: str) -> TakenPartition:
        self._lose(0.1)
        taken = super().take(place, owner)
        self._lose(0.1)
        return taken

    def write(
        self, place: SinkPartition, epoch: int, start: int | None, end: int, changes: Sequence[SinkChange]
    ) -> None:
        if changes and not self.calm and self.chance.random() < 0.2:
            self.late.append((place, epoch, start, end, changes))
            raise RetryLater("no answer, and the request may still arrive")
        self.arrives(place, epoch, start, end, changes)
        self._lose(0.15)

    def arrives(
        self, place: SinkPartition, epoch: int, start: int | None, end: int, changes: Sequence[SinkChange]
    ) -> None:
        refused = [change for change in changes if change.value % 7 == 0]
        if refused and not self.mended:
            raise Rejected("divisible by 7", offset=refused[0].offset if self.chance.random() < 0.5 else None)
        self.apply(place, epoch, start, end, changes)

    def apply(
        self, place: SinkPartition, epoch: int, start: int | None, end: int, changes: Sequence[SinkChange]
    ) -> None:
        super().write(place, epoch, start, end, changes)

    def one_arrives_late(self) -> None:
        if self.late:
            with suppress(Migrated, Rejected):
                self.arrives(*self.late.pop(self.chance.randrange(len(self.late))))

    def _lose(self, probability: float) -> None:
        if not self.calm and self.chance.random() < probability:
            raise RetryLater("no answer")


class WithoutEpoch(Hostile):
    """Compares the position alone."""

    def apply(self, place: SinkPartition, epoch: int, *rest: Any) -> None:
        super().apply(place, self.held[place.sink, place.topic, place.partition].epoch, *rest)


def flaws_of_a_round(seed: int, kind: Callable[[random.Random], Hostile] = Hostile) -> list[str]:
    """Play a round, and return what the oracle finds."""
    chance = random.Random(seed)
    target = kind(chance)
    out = Sink("out", EVENTS, target, max_records=3, max_wait=0.0)
    sent = 0
    with Tester(partitions=PARTITIONS) as tester:
        tester.run(out)
        members = 1
        for number in range(ACTIONS):
            target.mended = number > ACTIONS // 2
            match chance.choice(("emit", "emit", "emit", "crash", "late", "late", "wait", "join", "leave")):
                case "emit":
                    count = chance.randint(1, 5)
                    tester.emit_many(EVENTS, [(chance.choice("abcd"), sent + at) for at in range(count)])
                    sent += count
                case "crash":
                    tester.crash(out, chance.choice(STEPS), member=chance.randrange(members))
                case "late":
                    target.one_arrives_late()
                case "wait":
                    tester.start(out)
                    tester.advance(chance.choice((1, 10, 60)))
                case "join" if members < PARTITIONS + 1:
                    tester.join(out)
                    members += 1
                case "leave" if members > 1:
                    tester.start(out)
                    tester.leave(out)
                    members -= 1
        target.calm = True
        for member in range(members):
            tester.crash(out, member=member)  # and with it what was ordered and has not happened
        for _ in range(3):
            tester.start(out)
            tester.advance(90)
            target.one_arrives_late()
            tester.emit_many(EVENTS, [(key, sent + at) for at, key in enumerate("abcd")])
            sent += 4
        tester.advance(90)
        letters = {(letter.origin.partition, letter.origin.offset) for letter in tester.dead_letters(out)}
        records = {(each.partition, each.offset) for each in tester.records(EVENTS)}
    return list(_flaws(target, letters, records))


def _flaws(target: Hostile, letters: set[tuple[int, int]], records: set[tuple[int, int]]) -> list[str]:
    applied = [(partition, change.offset) for partition, change in target.applied]
    found = []
    if len(applied) > len(set(applied)):
        found.append("a record was applied twice")
    if set(applied) & letters:
        found.append("a record was applied, and is in the dead letters")
    if records - set(applied) - letters:
        found.append("a record was lost")
    for number in range(PARTITIONS):
        offsets = [offset for partition, offset in applied if partition == number]
        if offsets != sorted(offsets):
            found.append("records were applied in another order")
    return found


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_round_applies_each_record_once_or_sets_it_aside(seed: int) -> None:
    assert flaws_of_a_round(seed) == []


@pytest.mark.faults_long("rounds with new seeds")
def test_rounds_with_new_seeds_apply_each_record_once_or_set_it_aside() -> None:
    first = int(os.environ.get("FAULTS_SEED", "1")) * 1_000_000
    rounds = 50 * int(os.environ.get("FAULTS_ROUNDS") or 10)
    for seed in range(first, first + rounds):
        assert flaws_of_a_round(seed) == [], seed


def found_within(rounds: int, kind: Callable[[random.Random], Hostile]) -> set[str]:
    """Return the flaws of the first round that has any."""
    return next((set(found) for seed in range(rounds) if (found := flaws_of_a_round(seed, kind))), set())


def test_rounds_without_the_epoch_find_a_record_that_is_applied_and_set_aside() -> None:
    assert "a record was applied, and is in the dead letters" in found_within(
        ROUNDS_OF_A_COUNTER_TEST, WithoutEpoch
    )


def test_rounds_with_kafkas_offset_as_the_truth_find_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "position_of", lambda *_: Unknown.RESET)
    assert "a record was applied twice" in found_within(ROUNDS_OF_A_COUNTER_TEST, Hostile)
