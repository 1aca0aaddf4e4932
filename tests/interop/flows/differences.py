"""Programs that show where flows differ from Kafka Streams on purpose: one for each row of docs/reference/kafka-streams.md."""

from typing import Any

from tests.interop.flows.programs import Program, Step

COUNT: Step = {"op": "count"}
MAX: Step = {"op": "max", "fn": "max"}


def _program(name: str, steps: list[Step], inputs: list[tuple[Any, ...]], kind: str = "stream") -> Program:
    """Inputs are (key, value, time), or (topic, key, value, time)."""
    records = [list(each) if len(each) == 4 else ["a", *each] for each in inputs]
    return {"name": name, "kind": kind, "steps": steps, "inputs": records}


def _tumbling(emit: str) -> Step:
    return {"op": "window", "kind": "tumbling", "size": 10, "grace": 0, "into": COUNT, "emit": emit}


def _sliding(grace: int, into: Step, emit: str) -> Step:
    return {"op": "window", "kind": "sliding", "size": 10, "grace": grace, "into": into, "emit": emit}


def _session(grace: int, into: Step, emit: str) -> Step:
    return {"op": "window", "kind": "session", "gap": 5, "grace": grace, "into": into, "emit": emit}


_SUM_FROM_5: Step = {"op": "aggregate", "fn": "hash", "initial": 5}
_NOT_3: Step = {"fn": "not_mod", "n": 3, "r": 0}

PROGRAMS = [
    _program(
        "one-change-for-several-records",
        [{"op": "flat_map_values", "by": {"fn": "copies", "n": 4}}, COUNT],
        [("x", 3, 1)],
    ),
    _program(
        "group-between-two-changes",
        [
            {"op": "flat_map_values", "by": {"fn": "copies", "n": 4}},
            {"op": "to_table"},
            {"op": "group_by", "by": {"fn": "key", "p": "g", "n": 4}, "into": COUNT},
        ],
        [("x", 3, 1)],
    ),
    _program(
        "tombstone-for-no-row",
        [{"op": "filter", "by": _NOT_3}],
        [("x", 3, 1), ("x", 4, 2), ("x", 6, 3), ("x", 9, 4)],
        "table",
    ),
    _program("time-of-a-change", [COUNT], [("x", 1, 20), ("x", 1, 10)]),
    _program("time-of-a-final-result", [_tumbling("final")], [("x", 1, 3), ("x", 1, 25)]),
    _program(
        "update-of-a-session", [_session(5, COUNT, "changes")], [("x", 1, 10), ("x", 1, 14), ("x", 1, 12)]
    ),
    _program(
        "session-closed-one-ms-early",
        [_session(2, COUNT, "final")],
        [("x", 1, 10), ("y", 1, 17), ("x", 1, 15), ("y", 1, 60)],
    ),
    _program(
        "merging-with-the-initial-row", [_session(0, _SUM_FROM_5, "changes")], [("x", 1, 10), ("x", 1, 12)]
    ),
    _program(
        "taking-away-the-initial-row",
        [_SUM_FROM_5, {"op": "group_by", "by": {"fn": "key", "p": "g", "n": 2}, "into": COUNT}],
        [("y", 2, 1), ("z", 2, 2)],
    ),
    _program(
        "filtered-records-and-time",
        [{"op": "filter", "by": _NOT_3}, _tumbling("changes")],
        [("x", 1, 5), ("x", 3, 25), ("x", 1, 6)],
    ),
    _program(
        "merged-inputs-and-time",
        [{"op": "merge", "with": "b", "steps": []}, _tumbling("changes")],
        [("a", "x", 1, 25), ("b", "x", 1, 6)],
    ),
    _program(
        "none-in-an-aggregate",
        [{"op": "map_values", "by": {"fn": "drop", "n": 3, "r": 0}}, COUNT],
        [("x", 1, 1), ("x", 3, 2)],
    ),
    _program(
        "record-without-a-value",
        [{"op": "map_values", "by": {"fn": "add", "n": 1}}],
        [("x", 1, 1), ("x", None, 2)],
    ),
    _program(
        "sliding-window-out-of-order",
        [_sliding(5, COUNT, "changes")],
        [("x", 1, 10), ("y", 1, 22), ("x", 1, 12), ("x", 1, 20)],
    ),
    _program(
        "dropped-row-of-a-sliding-window",
        [_sliding(50, {"op": "reduce", "fn": "hash_drop"}, "changes")],
        [("x", 1, 100), ("x", 2, 105), ("x", 1, 110)],
    ),
    _program(
        "final-result-of-a-sliding-window",
        [_sliding(0, COUNT, "final")],
        [("x", 1, 10), ("x", 1, 10), ("x", 1, 30)],
    ),
    _program("window-of-a-silent-stream", [_tumbling("final")], [("x", 1, 3)]),
]

_BOUNDS = {"of": "streams", "op": "join", "before": 10, "after": 10, "grace": 5}
JOINS = [
    {
        "name": "join-behind-the-other-stream",
        "kind": "join",
        "join": _BOUNDS,
        "inputs": [["b", "x", 2, 100], ["b", "y", 2, 1_000], ["a", "x", 1, 100]],
    },
    {
        "name": "join-after-the-window",
        "kind": "join",
        "join": _BOUNDS,
        "inputs": [["a", "x", 1, 100], ["b", "y", 2, 117], ["b", "x", 3, 100]],
    },
    {
        "name": "alone-and-then-a-pair",
        "kind": "join",
        "join": {**_BOUNDS, "op": "left_join", "grace": 500},
        "inputs": [["b", "y", 2, 120], ["a", "x", 1, 100], ["b", "x", 3, 105]],
    },
    {
        "name": "last-record-of-silent-streams",
        "kind": "join",
        "join": {**_BOUNDS, "op": "left_join"},
        "inputs": [["a", "x", 1, 100]],
    },
    {
        "name": "version-too-late",
        "kind": "join",
        "join": {"of": "as_of", "op": "left_join"},
        "inputs": [["b", "x", 1, 10], ["a", "y", 5, 100], ["b", "x", 2, 20], ["a", "x", 3, 50]],
    },
]
