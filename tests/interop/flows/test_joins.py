"""Joins of flows write what Kafka Streams writes, but for the differences that docs/reference/kafka-streams.md lists."""

import os
from typing import Any

import pytest
from tests.interop.flows import joins
from tests.interop.flows.differences import JOINS
from tests.interop.flows.joins import Program, differences, random_join
from tests.interop.flows.theirs import JOIN_DIFFERENCES, JOINS_GOLDEN, Answer, ask, read
from tests.interop.shared.programs import TOPOLOGY

CASES = read(JOINS_GOLDEN)
KNOWN = {program["name"]: (program, answer) for program, answer in read(JOIN_DIFFERENCES)}
SEED = int(os.environ.get("FAULTS_SEED", "20260"))
with_java = pytest.mark.skipif(bool(TOPOLOGY.unfit), reason=TOPOLOGY.unfit)


@pytest.mark.parametrize("case", CASES, ids=[program["name"] for program, _ in CASES])
def test_a_join_writes_what_kafka_streams_writes(case: tuple[Program, Answer]) -> None:
    program, answer = case
    assert not differences(program, joins.run(program), answer), program["join"]


@with_java
def test_the_committed_answers_are_those_of_kafka_streams() -> None:
    for cases in (CASES, list(KNOWN.values())):
        assert ask([program for program, _ in cases]) == [answer for _, answer in cases]


def test_the_committed_programs_are_those_that_are_made_today() -> None:
    assert [program for program, _ in KNOWN.values()] == JOINS
    assert [program for program, _ in CASES] == list(map(random_join, joins.SEEDS))


@with_java
@pytest.mark.faults_long
def test_hundreds_of_joins_write_what_kafka_streams_writes() -> None:
    programs = [random_join(SEED * 10_000 + number) for number in range(300)]
    found: dict[str, Any] = {}
    for program, answer in zip(programs, ask(programs), strict=True):
        if lines := differences(program, joins.run(program), answer):
            found[program["name"]] = program["join"], lines[:2]
    assert not found, f"FAULTS_SEED={SEED}"


# ---- differences that are intended, each as in the table of the page -------------------------------------------------------------


def both(name: str) -> tuple[list[Any], list[Any]]:
    """Return the keys, values and timestamps that we write, and what Kafka Streams does."""
    program, answer = KNOWN[name]
    ours, theirs = ([each for step in made for each in step] for made in (joins.run(program), answer))
    return _short(ours), _short(theirs)


def _short(made: list[list[Any]]) -> list[Any]:
    return [(bytes.fromhex(key).decode(), value, time) for key, value, time in made]


def test_a_record_is_not_late_for_a_join_because_the_other_stream_is_ahead() -> None:
    we, they = both("join-behind-the-other-stream")
    assert we == [("x", 1_002, 100)]
    assert they == []


def test_a_record_that_comes_after_the_windows_of_others_are_closed_does_not_match_them() -> None:
    we, they = both("join-after-the-window")
    assert we == []
    assert they == [("x", 1_003, 100)]


def test_a_record_that_is_matched_later_does_not_come_out_alone() -> None:
    we, they = both("alone-and-then-a-pair")
    assert we == [("x", 1_003, 105)]
    assert they == [("x", 1_900, 100), ("x", 1_003, 105)]


def test_the_last_record_of_silent_streams_comes_out_alone() -> None:
    program, answer = KNOWN["last-record-of-silent-streams"]
    assert answer == [[]]
    assert _short(joins.run_until_idle(program)) == [("x", 1_900, 100)]


def test_a_version_of_a_table_that_comes_too_late_does_not_change_what_may_have_been_joined() -> None:
    we, they = both("version-too-late")
    assert sorted(we) == [("x", 3_001, 50)]
    assert sorted(they) == [("x", 3_002, 50), ("y", 5_900, 100)]
