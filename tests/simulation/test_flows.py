"""Random flows make what their steps are defined to make, whatever the batches, and whenever processes crash."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import count, takewhile
from random import Random
from typing import Any

import pytest
from tests.simulation import join_bugs
from tests.simulation.definitions import (
    NOW_MS,
    SALES,
    SHOPS,
    USERS,
    VISITS,
    Event,
    random_events,
    random_flow,
)

from streamtable import Group, Json, Stream, String
from streamtable.base.failpoint import COMMIT_STEPS
from streamtable_testing import Tester

SEEDS = range(4)
_ROUNDS = 30  # of commits at the end: after a failed one, each record takes a commit of its own


def differences(seed: int) -> list[str]:
    """Run a random flow, and return how it differs from the definitions."""
    rng = Random(seed)
    events = random_events(rng)
    flow, steps = random_flow(rng)
    with Tester(
        partitions=rng.choice((1, 1, 2, 3)),
        commit_on_request=rng.random() < 0.4,
        work_on_request=rng.random() < 0.2,
        poll_records=rng.choice((1, 2, 3, 7, 10_000)),
        purge=rng.random() < 0.3,
        now=NOW_MS / 1000,
    ) as tester:
        tester.create(SALES, VISITS, *(Stream(each.name, each.key, each.value) for each in (USERS, SHOPS)))
        first = rng.randrange(len(events)) if rng.random() < 0.4 else 0
        _emit(tester, events[:first])
        tester.run(flow, members=rng.choice((1, 1, 2)))
        for event in events[first:]:
            _emit(tester, [event])
            _attack(tester, flow.groups, rng)
        _heal(tester, flow.groups, rng)
        failed = [
            name
            for name in tester.kafka.topics
            if name.endswith("-dead-letters") and tester.kafka.records(name)
        ]
        return [f"records failed: {failed}"] * bool(failed) + [
            f"seed {seed}: found {found}, defined is {defined}"
            for found, defined in ((dict(each.found(tester)), dict(each.defined(events))) for each in steps)
            if found != defined
        ]


def _emit(tester: Tester, events: Iterable[Event]) -> None:
    for topic, key, value, time_ms in events:
        data = None if value is None else Json().encode(value)
        tester.emit_raw(topic, String().encode(key), data, timestamp_ms=time_ms)


def _attack(tester: Tester, groups: Sequence[Group[Any, Any]], rng: Random) -> None:
    group, drawn = rng.choice(groups), rng.random()
    if drawn < 0.1:
        tester.commit()
    elif drawn < 0.18:
        number = rng.randrange(len(tester._of(group)))
        if tester._of(group)[number].processor is not None:
            tester.crash(group, rng.choice((None, *COMMIT_STEPS)), member=number, times=1)
    elif drawn < 0.3:
        tester.start(group, disk=rng.random() < 0.5)
    elif drawn < 0.4:
        tester.work()


def _heal(tester: Tester, groups: Sequence[Group[Any, Any]], rng: Random) -> None:
    for group in groups:
        for instance in tester._of(group):
            instance.kill_at = None
        tester.start(group, disk=rng.random() < 0.5)
    for _ in range(_ROUNDS):
        tester.advance(50)
        tester.commit()
    tester.work()


def first_difference(seeds: Iterable[int]) -> str:
    return next((found[0] for found in map(differences, seeds) if found), "")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_flow_makes_what_its_steps_are_defined_to_make(seed: int) -> None:
    assert differences(seed) == []


@pytest.mark.faults_long("random flows for some time")
@pytest.mark.timeout(0)
def test_so_do_many_random_flows() -> None:
    first = int(os.environ.get("FAULTS_SEED", "20260")) * 1_000_000
    end = time.monotonic() + float(os.environ.get("FAULTS_SECONDS", "120"))
    assert first_difference(takewhile(lambda _: time.monotonic() < end, count(first))) == ""


@pytest.mark.parametrize(
    ("plant", "seed"),
    [
        (join_bugs.matched_records_come_out_alone_too, 2),
        (join_bugs.changes_of_right_rows_reach_no_subscriber, 17),
    ],
)
def test_a_bug_planted_in_a_step_is_found(plant: Callable[[pytest.MonkeyPatch], None], seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        assert differences(seed)
    assert differences(seed) == []
