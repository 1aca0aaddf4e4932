"""Streams that other programs wrote: records without keys, and tombstones."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest

from streamtable import (
    Context,
    Group,
    Input,
    Json,
    NoKey,
    Once,
    OnError,
    Output,
    Persist,
    State,
    Stream,
    String,
    Table,
    Timer,
)
from streamtable.errors import GraphError, SerializationError
from streamtable.flow import Flow
from streamtable_testing import Tester

EVENTS: Stream[None, Any] = Stream("events", NoKey(), Json())
USERS: Stream[str, Any] = Stream("users", String(), Json())
OUT: Stream[str, Any] = Stream("out", String(), Json())
COPY: Stream[None, Any] = Stream("copy", NoKey(), Json())


def user(event: dict[str, Any]) -> str:
    return str(event["user"])


def emit(tester: Tester, *users: str) -> None:
    for name in users:
        tester.emit(EVENTS, None, {"user": name})


# ---- no keys ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batches", [1, 5])
def test_a_flow_gives_keys_to_records_without_keys(tester: Tester, batches: int) -> None:
    flow = Flow("f")
    table = flow.stream(EVENTS).filter(bool).group_by("by-user", user, key=String()).count("n")
    tester.create(EVENTS, partitions=4)
    if batches > 1:
        tester.run(flow)
    emit(tester, "ann", "bob", "ann")
    if batches == 1:
        tester.run(flow)
    assert tester.table(table.table) == {"ann": 2, "bob": 1}
    assert tester.dead_letters(flow.group()) == []


def test_keys_that_mean_nothing_are_not_read(tester: Tester) -> None:
    flow = Flow("f")
    flow.stream(EVENTS).map(lambda key, event: (repr(key), event)).to(OUT)
    tester.run(flow)
    tester.emit_raw("events", b"\xff no text", b'{"user": "ann"}')
    tester.emit_raw("events", None, b'{"user": "bob"}')
    assert [(r.key, r.value) for r in tester.records(OUT)] == [
        ("None", {"user": "ann"}),
        ("None", {"user": "bob"}),
    ]


def test_records_without_keys_are_copied_without_keys_branched_and_merged(tester: Tester) -> None:
    flow = Flow("f")
    ann, others = flow.stream(EVENTS).split(lambda event: event["user"] == "ann")
    ann.merge(others.map_values(lambda event: {**event, "other": True})).to(COPY)
    tester.run(flow)
    emit(tester, "bob", "ann")
    assert [(r.key, r.value) for r in tester.records(COPY)] == [
        (None, {"user": "bob", "other": True}),
        (None, {"user": "ann"}),
    ]


NEEDS_KEYS: dict[str, Callable[[Any], object]] = {
    "group_by_key": lambda s: s.group_by_key(),
    "to_table": lambda s: s.to_table("t"),
    "process": lambda s: s.process(lambda ctx, event: None),
    "repartition": lambda s: s.repartition("r"),
    "join_table": lambda s: s.join_table(s.key_by("k", user, key=String()).to_table("t"), lambda e, row: e),
}


@pytest.mark.parametrize("step", NEEDS_KEYS)
def test_a_step_that_needs_keys_is_refused_when_the_flow_is_built(step: str) -> None:
    with pytest.raises(GraphError, match=r"stream (without keys|that has none)|partitioned differently"):
        NEEDS_KEYS[step](Flow("f").stream(EVENTS))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Table("t", NoKey(), Json()),
        lambda: State("s", key=NoKey(), value=Json()),
        lambda: Flow("f").stream(EVENTS).key_by("k", lambda _: None, key=NoKey()),
        lambda: Stream("s", None, Json()),  # type: ignore[arg-type] # this is what it is about
        lambda: Group("g", Input(cast("Any", EVENTS), handle), Persist(Json())),
        lambda: Group("g", Input(EVENTS, handle), Timer("t", handle, payload=Json())),
        lambda: Group("g", Input(cast("Any", EVENTS), handle), Input(USERS, handle)),
    ],
)
def test_a_place_that_needs_keys_is_refused_without(make: Callable[[], object]) -> None:
    with pytest.raises(GraphError, match=r"NoKey|which has none"):
        make()


def handle(ctx: Context[Any, Any], event: Any, *_: Any) -> None:
    ctx.emit(OUT, user(event), {"key": ctx.key, "raw": ctx.raw_key.decode(), "event": event})


@pytest.mark.parametrize("on_error", [OnError.DEAD_LETTER, OnError.SKIP])
def test_a_group_handles_records_without_keys_and_undoes_the_one_that_fails(
    tester: Tester, on_error: OnError
) -> None:
    def fails(ctx: Context[Any, Any], event: Any) -> None:
        handle(ctx, event)
        if event["user"] == "eve":
            ctx.fail("no")

    group: Group[Any, Any] = Group(
        "g",
        Input(EVENTS, fails, on_error=on_error, once=Once(by="user", within=timedelta(hours=1))),
        Output(OUT),
    )
    tester.create(EVENTS)
    emit(tester, "ann", "eve", "bob", "ann")
    tester.run(group)
    assert [r.value for r in tester.records(OUT)] == [
        {"key": None, "raw": "", "event": {"user": name}} for name in ("ann", "bob")
    ]
    letters = tester.dead_letters(group)
    assert [letter.key for letter in letters] == ([None] if on_error is OnError.DEAD_LETTER else [])
    for letter in letters:
        tester.retry(group, letter)
        assert len(tester.dead_letters(group)) == 2


def test_a_record_without_a_key_in_a_stream_with_keys_is_one_dead_letter_that_says_what_to_do(
    tester: Tester,
) -> None:
    flow = Flow("f")
    flow.stream(USERS).to(OUT)
    tester.run(flow)
    tester.emit_raw("users", None, b"{}")
    (letter,) = tester.dead_letters(flow.group())
    assert "key=NoKey()" in letter.reason


def test_an_emitter_of_a_stream_without_keys_takes_none_alone(tester: Tester) -> None:
    tester.create(EVENTS, USERS)
    with pytest.raises(SerializationError, match="give None"):
        tester.emit(cast("Any", EVENTS), "ann", {})
    with pytest.raises(SerializationError, match="needs a key"):
        tester.emit(cast("Any", USERS), None, {})


# ---- tombstones ------------------------------------------------------------------------------------------------------------


def test_tombstones_are_left_out_by_a_flow(tester: Tester) -> None:
    flow = Flow("f")
    flow.stream(USERS).to(OUT)
    tester.create(USERS)
    for key in "abc":
        tester.emit(USERS, key, {"op": "d"})
        tester.emit(USERS, key, None)
    tester.run(flow)
    assert [r.value for r in tester.records(OUT)] == 3 * [{"op": "d"}]
    assert tester.dead_letters(flow.group()) == []


def test_tombstones_are_taken_by_choice(tester: Tester) -> None:
    flow = Flow("f")
    table = flow.stream(USERS, tombstones=True).to_table("t")
    flow.stream(USERS, tombstones=True).to(OUT)
    tester.run(flow)
    for key, value in (("a", {"n": 1}), ("b", {"n": 2}), ("a", None)):
        tester.emit(USERS, key, value)
    assert tester.table(table.table) == {"b": {"n": 2}}
    assert [r.value for r in tester.records(OUT)] == [{"n": 1}, {"n": 2}, None]


def test_tombstones_that_are_left_out_beside_a_failing_record_keep_the_others_in_order(
    tester: Tester,
) -> None:
    flow = Flow("f", on_error=OnError.DEAD_LETTER)
    flow.stream(USERS, time=lambda value: value["at"]).map_values(lambda value: {"n": 1 // value["n"]}).to(
        OUT
    )
    tester.create(USERS)
    for number, value in enumerate([{"at": 1, "n": 1}, None, {"at": 2, "n": 0}, None, {"at": 3, "n": 1}]):
        tester.emit(USERS, str(number), value)
    tester.run(flow)
    assert [r.key for r in tester.records(OUT)] == ["0", "4"]
    assert [letter.key for letter in tester.dead_letters(flow.group())] == [b"2"]


def test_tombstones_have_nothing_to_take_a_time_or_an_id_from() -> None:
    with pytest.raises(GraphError, match="time and once"):
        Flow("f").stream(USERS, time=len, once=Once(by="id", within=timedelta(hours=1)), tombstones=True)  # type: ignore[call-overload] # the types say so


def test_a_group_leaves_tombstones_out_by_choice(tester: Tester) -> None:
    group: Group[Any, Any] = Group("g", Input(USERS, handle, tombstones="skip"), Output(OUT))
    tester.run(group)
    tester.emit(USERS, "k", None)
    tester.emit(USERS, "k", {"user": "ann"})
    assert len(tester.records(OUT)) == 1
    assert tester.dead_letters(group) == []
