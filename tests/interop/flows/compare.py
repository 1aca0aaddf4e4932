"""Compares what a flow has written with what Kafka Streams has, but for the differences that are intended.

They are listed in docs/reference/kafka-streams.md, and each is held to a program in `differences.jsonl`.
"""

from collections.abc import Sequence
from typing import Any

from tests.interop.flows.programs import Program, Step, collapses, window_of

Output = list[Any]


def differences(
    program: Program, ours: Sequence[Sequence[Output]], theirs: Sequence[Sequence[Output]]
) -> list[str]:
    """Return how the two differ, input by input; each with a commit of its own on our side."""
    seen = _canonical(program, ours), _canonical(program, theirs)
    found = []
    for number, (one, other) in enumerate(zip(*seen, strict=True)):
        if [each[:2] for each in one] != [each[:2] for each in other]:
            found.append(
                f"input {number}, {program['inputs'][number]}: we write {one}, Kafka Streams {other}"
            )
        elif wrong := [pair for pair in zip(one, other, strict=True) if not _timed(program, *pair)]:
            found.append(
                f"input {number}, {program['inputs'][number]}: the timestamps of ours and theirs {wrong}"
            )
    return found


def rows(written: Sequence[Output]) -> dict[str, int]:
    """Return the table that a stream of changes makes."""
    last = {key: value for key, value, _ in written}
    return {key: value for key, value in last.items() if value is not None}


def _canonical(program: Program, steps: Sequence[Sequence[Output]]) -> list[list[Output]]:
    """Return the records without tombstones that delete nothing, and in an order that both sides have."""
    window, collapsed = window_of(program), collapses(program["steps"])
    there: set[str] = set()
    canonical = []
    for written in steps:
        step = list(written)
        if collapsed or (window and window["kind"] in {"session", "sliding"}):
            # One change for each key: the last one.
            step = list({record[0]: record for record in step}.values())
            step.sort(key=lambda record: str(record[0]))
        kept = []
        for key, value, time in step:
            if value is not None or key in there:
                kept.append([key, value, time])
            (there.discard if value is None else there.add)(key)
        canonical.append(kept)
    return canonical


def _timed(program: Program, ours: Output, theirs: Output) -> bool:
    """Whether the timestamps are those that the page promises."""
    key, _, time = ours
    window, steps = window_of(program), program["steps"]
    if all(step["op"] in STATELESS for step in steps):
        return bool(time == theirs[2])
    if (
        window
        and window["emit"] == "final"
        and not any(step["op"] == "key_by" for step in _after(steps, window))
    ):
        data = bytes.fromhex(key)
        if window["kind"] == "session":
            start, last = int.from_bytes(data[-8:], "big"), int.from_bytes(data[-16:-8], "big")
        else:
            start = int.from_bytes(data[-8:], "big")
            last = start + window["size"] - (window["kind"] != "sliding")
        return bool(time == last and start <= theirs[2] <= last)
    if window and window["emit"] == "final":
        return True
    # Kafka Streams' is the greatest of all records in the row; a session's tombstone has the end of the session.
    return bool(time <= theirs[2] or (window and window["kind"] == "session" and ours[1] is None))


STATELESS = {"filter", "map_values", "flat_map_values", "map", "key_by", "repartition", "split", "merge"}


def _after(steps: Sequence[Step], step: Step) -> Sequence[Step]:
    return steps[[each is step for each in steps].index(True) + 1 :]
