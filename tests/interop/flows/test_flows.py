"""Flows write what Kafka Streams writes, record by record, but for the differences that docs/reference/kafka-streams.md lists."""

import os
from typing import Any
from unittest.mock import patch

import pytest
from tests.interop.flows import ours
from tests.interop.flows.compare import differences, rows
from tests.interop.flows.differences import PROGRAMS
from tests.interop.flows.lateness import event_time_differs
from tests.interop.flows.programs import Program, comparable, random_program
from tests.interop.flows.theirs import DIFFERENCES, GOLDEN, Answer, ask, read
from tests.interop.shared.programs import TOPOLOGY

CASES = read(GOLDEN)
KNOWN = {program["name"]: (program, answer) for program, answer in read(DIFFERENCES)}
SEED = int(os.environ.get("FAULTS_SEED", "20260"))
PARTS = 10
IN_A_PART = 100
each_case = pytest.mark.parametrize("case", CASES, ids=[program["name"] for program, _ in CASES])
with_java = pytest.mark.skipif(bool(TOPOLOGY.unfit), reason=TOPOLOGY.unfit)


def wrong(program: Program, answer: Answer) -> list[str]:
    """Return how a flow differs from Kafka Streams, with a commit for each input, and with one for all."""
    if event_time_differs(program):
        # The page says so; all but which records are late must be the same, so it is compared without watermarks.
        with patch("streamtable.flow.plan.compiler.topics_in_band", return_value=frozenset()):
            return _wrong(program, answer)
    return _wrong(program, answer)


def _wrong(program: Program, answer: Answer) -> list[str]:
    found = differences(program, ours.run(program), answer)
    one_order = all(topic == "a" for topic, *_ in program["inputs"])
    if one_order and comparable(program["steps"], at_once=True):
        made = rows(ours.run_at_once(program))
        theirs = rows([record for step in answer for record in step])
        if made != theirs:
            found.append(f"all inputs in one batch make {made}, Kafka Streams' table is {theirs}")
    return found


@each_case
def test_a_flow_writes_what_kafka_streams_writes(case: tuple[Program, Answer]) -> None:
    program, answer = case
    assert not wrong(program, answer), program["steps"]


@with_java
def test_the_committed_answers_are_those_of_kafka_streams() -> None:
    for cases in (CASES, list(KNOWN.values())):
        assert ask([program for program, _ in cases]) == [answer for _, answer in cases]


def test_only_programs_whose_event_time_decides_are_compared_without_watermarks() -> None:
    assert event_time_differs(KNOWN["filtered-records-and-time"][0])
    apart = [program["name"] for program, _ in CASES if event_time_differs(program)]
    assert apart == ["hopping-27", "tumbling-34", "tumbling-50", "hopping-59"]


def test_of_merged_inputs_a_record_is_late_by_its_own() -> None:
    inputs = [["b", "w", 9, 1323], ["a", "x", 24, 1333], ["b", "x", 28, 1338], ["b", "w", 9, 1323]]
    merge = {"op": "merge", "with": "b", "steps": []}
    odd = {"op": "flat_map_values", "by": {"fn": "copies", "n": 2}}
    window = {
        "op": "window",
        "kind": "tumbling",
        "size": 10,
        "grace": 5,
        "into": {"op": "count"},
        "emit": "changes",
    }
    program: Program = {"kind": "stream", "steps": [merge, odd, window], "inputs": inputs}
    assert event_time_differs(program)
    assert not event_time_differs({**program, "inputs": inputs[:3]})


def test_a_merged_input_without_any_record_keeps_windows_open() -> None:
    merge = {"op": "merge", "with": "b", "steps": []}
    by = {"fn": "key", "p": "k", "n": 1}
    window = {
        "op": "window",
        "kind": "tumbling",
        "size": 40,
        "grace": 0,
        "into": {"op": "count"},
        "emit": "final",
    }
    inputs = [["a", "y", 26, 1120], ["a", "x", 25, 1240], ["b", "y", 27, 1505]]
    program: Program = {
        "kind": "stream",
        "steps": [merge, {"op": "key_by", "by": by}, {"op": "repartition"}, window],
        "inputs": inputs,
    }
    assert [len(made) for made in ours.run(program)] == [0, 0, 1]
    assert event_time_differs(program)


def test_the_committed_programs_are_those_that_are_made_today() -> None:
    assert [program for program, _ in KNOWN.values()] == PROGRAMS
    assert [program for program, _ in CASES] == [random_program(seed) for seed in range(len(CASES))]


@with_java
@pytest.mark.faults_long
@pytest.mark.parametrize("part", range(PARTS))
def test_a_thousand_flows_write_what_kafka_streams_writes(part: int) -> None:
    begin = SEED * 10_000 + part * IN_A_PART
    programs = [random_program(seed) for seed in range(begin, begin + IN_A_PART)]
    found: dict[str, Any] = {}
    for program, answer in zip(programs, ask(programs), strict=True):
        if lines := wrong(program, answer):
            found[program["name"]] = program["steps"], lines[:2]
    assert not found, f"FAULTS_SEED={SEED}"


# ---- differences that are intended, each as in the table of the page -------------------------------------------------------------


def both(name: str) -> tuple[list[list[Any]], list[list[Any]]]:
    """Return the keys and values that we write for each input of a program, and what Kafka Streams does."""
    program, answer = KNOWN[name]
    return [_short(step) for step in ours.run(program)], [_short(step) for step in answer]


def timestamps(name: str) -> tuple[list[int], list[int]]:
    """Return the timestamps of the records that we write for each input of a program, and Kafka Streams' timestamps."""
    program, answer = KNOWN[name]
    return [each[2] for step in ours.run(program) for each in step], [
        each[2] for step in answer for each in step
    ]


def _short(step: list[list[Any]]) -> list[Any]:
    """Return keys and values; of a windowed key the letter, and the start (and of a session the end) of its window."""
    short = []
    for data, value, _ in step:
        raw = bytes.fromhex(data)
        times = [int.from_bytes(raw[at - 8 : at or None], "big") for at in range(0, -(len(raw) // 8) * 8, -8)]
        key = raw[: len(raw) - 8 * len(times)].decode()
        short.append((key, *times, value))
    return short


def test_a_row_that_changes_several_times_in_a_commit_is_one_change() -> None:
    assert both("one-change-for-several-records") == ([[("x", 3)]], [[("x", 1), ("x", 2), ("x", 3)]])


def test_a_group_that_is_there_between_two_changes_only_has_no_row() -> None:
    we, they = both("group-between-two-changes")
    assert we == [[("g1", 1)]]
    assert they == [[("g3", 1), ("g3", 0), ("g0", 1), ("g0", 0), ("g1", 1)]]


def test_a_row_that_was_not_there_is_not_deleted() -> None:
    we, they = both("tombstone-for-no-row")
    assert we == [[], [("x", 4)], [("x", None)], []]
    assert they == [[("x", None)], [("x", 4)], [("x", None)], [("x", None)]]


def test_a_change_has_the_time_of_its_record() -> None:
    assert timestamps("time-of-a-change") == ([20, 10], [20, 20])


def test_a_final_result_has_the_last_time_of_its_window() -> None:
    assert timestamps("time-of-a-final-result") == ([9], [3])


def test_a_sliding_window_out_of_order_holds_what_closed_windows_held() -> None:
    we, they = both("sliding-window-out-of-order")
    assert we[3] == [("x", 10, 3), ("x", 11, 2), ("x", 13, 1)]
    assert they[3] == [("x", 11, 2), ("x", 10, 2)]


def test_a_sliding_window_whose_row_was_dropped_still_has_its_records() -> None:
    we, they = both("dropped-row-of-a-sliding-window")
    assert we[2] == [("x", 100, 1), ("x", 101, None), ("x", 106, 1)]
    assert they[2] == [("x", 101, None), ("x", 100, 32)]


def test_a_sliding_window_has_one_final_result_after_its_last_record() -> None:
    we, they = both("final-result-of-a-sliding-window")
    assert we == [[], [], [("x", 0, 2)]]
    assert they == [[("x", 0, 1)], [("x", 0, 2)], [("x", 20, 1)]]


def test_a_session_that_stays_the_same_is_not_deleted_first() -> None:
    we, they = both("update-of-a-session")
    assert we[2] == [("x", 10, 14, 3)]
    assert they[2] == [("x", 10, 14, None), ("x", 10, 14, 3)]


def test_a_session_closes_a_millisecond_after_its_end_and_gap_and_grace() -> None:
    we, they = both("session-closed-one-ms-early")
    assert [each for step in we for each in step if each[0] == "x"] == [("x", 10, 15, 2)]
    assert [each for step in they for each in step if each[0] == "x"] == [("x", 10, 10, 1), ("x", 15, 15, 1)]


def test_only_rows_that_were_there_are_taken_away() -> None:
    assert both("taking-away-the-initial-row") == ([[("g1", 1)], [("g1", 2)]], [[("g1", 1)], [("g1", 1)]])


def test_only_rows_of_sessions_are_merged() -> None:
    we, they = both("merging-with-the-initial-row")
    first = 5 * 31 + 1
    assert we[1][-1] == ("x", 10, 12, first * 31 + 1)
    assert they[1][-1] == ("x", 10, 12, (5 * 7 + first) * 31 + 1)


def test_a_record_that_is_filtered_out_moves_event_time() -> None:
    assert both("filtered-records-and-time") == (
        [[("x", 0, 1)], [], []],
        [[("x", 0, 1)], [], [("x", 0, 2)]],
    )


def test_a_record_is_not_late_because_another_input_is_ahead() -> None:
    assert both("merged-inputs-and-time") == ([[("x", 20, 1)], [("x", 0, 1)]], [[("x", 20, 1)], []])


def test_a_value_of_none_counts() -> None:
    assert both("none-in-an-aggregate") == ([[("x", 1)], [("x", 2)]], [[("x", 1)], []])


def test_a_record_without_a_value_is_left_out() -> None:
    program, answer = KNOWN["record-without-a-value"]
    assert [_short(step) for step in answer] == [[("x", 2)], [("x", None)]]
    assert [_short(step) for step in ours.run(program)] == [[("x", 2)], []]
    assert ours.dead_letters(program) == []


def test_a_window_of_a_silent_stream_closes() -> None:
    program, answer = KNOWN["window-of-a-silent-stream"]
    assert answer == [[]]
    assert _short(ours.run_until_idle(program)) == [("x", 0, 1)]
