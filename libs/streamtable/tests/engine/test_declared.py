"""The declared meaning of a group's own table and of the ids of `Once` is recorded, and another one is refused."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

import pytest

from streamtable import (
    Avro,
    Bytes,
    Changes,
    Context,
    Count,
    Group,
    Input,
    Join,
    Json,
    Long,
    Max,
    Once,
    Output,
    Persist,
    State,
    Stream,
    String,
    Sum,
    Table,
    Timer,
)
from streamtable.base.failpoint import COMMIT_STEPS
from streamtable.engine.named.meanings import StateRecords
from streamtable.errors import GraphError, StateLost, StateMeaningChanged
from streamtable.flow import Flow
from streamtable_testing.tester import Tester

EVENTS = Stream[str, Any]("events", String(), Json())
FIRED = Stream[str, Any]("fired", String(), Json())
SUMS = State("sums", key=String(), value=Long())
HOUR = timedelta(hours=1)


def count(ctx: Context[str, Any], _: Any) -> None:
    ctx.set((ctx.value or 0) + 1)


def of(event: Any) -> int:
    return int(event["n"])


def group(
    codec: Any = None, *, once: Once[Any] | None = None, version: str = "", **does: Any
) -> Group[str, Any]:
    return Group(
        "g",
        Input(EVENTS, once=once, **(does or {"handler": count})),
        Persist(codec or Long()),
        version=version,
    )


def by(name: str) -> Callable[[Any], Any]:
    return lambda event: event[name]


EDITS: dict[str, tuple[Group[str, Any], Group[str, Any], str, str]] = {
    "another number": (group(), group(Avro("double")), r"String\(\) to Long\(\)", "double"),
    "bytes": (group(), group(Bytes(), handler=lambda ctx, _: ctx.set(b"x")), r"Long\(\)", r"Bytes\(\)"),
    "another aggregate": (group(aggregate=Count()), group(aggregate=Sum(of)), "Count", "Sum"),
    "another aggregate of numbers": (group(aggregate=Sum(of)), group(aggregate=Max(of)), "Sum", "Max"),
    "a function for an aggregate": (group(aggregate=Count()), group(), "Count", "by a function"),
    "ids by another field": (
        group(once=Once(by="id", within=HOUR)), group(once=Once(by="n", within=HOUR)), "field 'id'", "field 'n'"
    ),
    "ids by a function": (
        group(once=Once(by="id", within=HOUR)), group(once=Once(by=by("id"), within=HOUR)), "field 'id'", "a function"
    ),
    "another horizon": (
        group(once=Once(by="id", within=HOUR)), group(once=Once(by="id", within=2 * HOUR)), "3600000 ms", "7200000 ms"
    ),
    "another version": (group(version="1"), group(version="2"), "version '1'", "version '2'"),
    "a version": (group(), group(version="2"), "version ''", "version '2'"),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.parametrize("disk", [True, False])
def test_an_edit_that_changes_what_rows_mean_is_refused_with_both_meanings_and_what_to_do(
    tester: Tester,
    name: str,
    disk: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    before, after, recorded, declared = EDITS[name]
    tester.run(before)
    tester.emit(EVENTS, "k", {"id": 1, "n": 5})
    rows = tester.table(before)
    tester.stop(before)
    with pytest.raises(StateMeaningChanged, match=f"{declared}.*{recorded}.*group reset g --to earliest"):
        tester.start(after, disk=disk)
    assert tester.table(before) == rows
    tester.start(before, disk=disk)  # nothing was changed
    tester.emit(EVENTS, "k", {"id": 2, "n": 5})
    assert tester.table(before) != rows


def test_other_ids_need_another_group_or_a_reset_as_a_new_topic_for_them_is_refused(tester: Tester) -> None:
    before, after, *_ = EDITS["ids by another field"]
    tester.run(before)
    tester.emit(EVENTS, "k", {"id": 1, "n": 5})
    tester.stop(before)
    with pytest.raises(
        StateMeaningChanged, match="Restore the old declaration; or give the flow, or the group"
    ):
        tester.start(after)
    tester.kafka.delete_topic("g-ids")
    tester.kafka.create_topics_of(after)
    with pytest.raises(StateLost, match="has committed the table's position"):
        tester.start(after)
    renamed = Group("h", *after.inputs, Persist(Long()))
    tester.run(renamed)
    assert tester.table(renamed) == {"k": 1}


@pytest.mark.parametrize("name", EDITS)
def test_it_is_accepted_while_there_are_no_rows(tester: Tester, name: str) -> None:
    before, after, _, _ = EDITS[name]
    tester.run(before)
    tester.stop(before)
    tester.start(after)
    tester.emit(EVENTS, "k", {"id": 1, "n": 5})
    assert set(tester.table(after)) == {"k"}


def reminding(
    key: Any, *, clock: Literal["event", "wall"] = "wall", payload: Any = None, name: str = "remind"
) -> Group[Any, Any]:
    def remind(ctx: Context[Any, Any], _: Any) -> None:
        ctx.emit(FIRED, "k", repr(ctx.key))

    timer = Timer[Any, Any, Any](name, remind, payload=payload or String(), clock=clock)

    def handle(ctx: Context[Any, Any], event: Any) -> None:
        ctx.timers.at(timer, ctx.timestamp_ms + 60_000, event)

    return Group("g", Input(Stream[Any, Any]("events", key, Json()), handle), timer, Output(FIRED))


@pytest.mark.parametrize("name", ["remind", "another"])
@pytest.mark.parametrize("clock", ["event", "wall"])
def test_timers_are_refused_with_another_codec_of_keys_as_they_would_fire_for_others(
    tester: Tester, clock: Literal["event", "wall"], name: str
) -> None:
    before, after = reminding(String(), clock=clock), reminding(Long(), clock=clock, name=name)
    tester.run(before)
    tester.emit(EVENTS, "8 bytes.", "event")
    tester.stop(before)
    with pytest.raises(
        StateMeaningChanged,
        match=r"'keys Long\(\)'.*'keys String\(\)'\. Restore .*give the group another name",
    ):
        tester.start(after)
    tester.start(before)
    tester.advance(100)
    tester.emit(EVENTS, "k", "event")
    assert [record.value for record in tester.records(FIRED)] == ["'8 bytes.'"]


def test_timers_whose_keys_an_earlier_version_has_not_recorded_are_accepted(
    tester: Tester, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare = StateRecords._compare

    def earlier(self: StateRecords, group: Any, name: str, key: bytes, *more: str) -> None:
        if not key.endswith(b"keys"):
            compare(self, group, name, key, *more)

    group = reminding(String())
    with monkeypatch.context() as patch:
        patch.setattr(StateRecords, "_compare", earlier)
        tester.run(group)
        tester.emit(EVENTS, "k", "event")
        tester.stop(group)
    tester.start(group)
    tester.advance(100)
    assert [record.value for record in tester.records(FIRED)] == ["'k'"]


def test_the_old_timer_beside_a_new_one_is_the_advice_for_another_payload(tester: Tester) -> None:
    tester.run(before := reminding(String()))
    tester.emit(EVENTS, "k", "event")
    tester.stop(before)
    with pytest.raises(StateMeaningChanged, match="keep this one with the old declaration"):
        tester.start(reminding(String(), payload=Json()))


def test_another_function_means_the_same_to_all_that_can_be_seen(tester: Tester) -> None:
    tester.run(group())
    tester.emit(EVENTS, "k", {})
    tester.stop(group())
    tester.start(group(handler=lambda ctx, _: ctx.set(7)))
    tester.emit(EVENTS, "k", {})
    assert tester.table(group()) == {"k": 7}


def test_a_version_of_a_flow_is_that_of_all_its_groups(tester: Tester) -> None:
    def flow(version: str) -> Flow:
        made = Flow("f", version=version)
        made.stream(EVENTS).group_by("by", lambda event: event["c"], key=String()).count("n")
        return made

    tester.run(flow("1"))
    tester.emit(EVENTS, "k", {"c": "red"})
    for each in flow("1").groups:
        tester.stop(each)
    for each in flow("2").groups:
        with pytest.raises(
            StateMeaningChanged, match=r"version '2' of the program's functions.*Restore the old version="
        ):
            tester.start(each)


@pytest.mark.parametrize("version", [2, None, "x" * 41])
def test_a_version_that_is_no_short_text_is_refused(version: Any) -> None:
    with pytest.raises(GraphError, match="version="):
        group(version=version)
    with pytest.raises(GraphError, match="version="):
        Flow("f", version=version)


# ---- Once that comes and goes -----------------------------------------------------------------------------------------

ONCE = Once[Any](by="id", within=HOUR)


def test_once_that_comes_back_after_events_were_handled_without_it_is_refused(tester: Tester) -> None:
    tester.run(group(once=ONCE))
    tester.emit(EVENTS, "k", {"id": 1})
    tester.stop(group(once=ONCE))
    tester.start(group())
    tester.emit(EVENTS, "k", {"id": 2})
    tester.stop(group())
    with pytest.raises(StateLost, match=r"gone on without it.*delete the topic.*\(g-ids\[0\]\)"):
        tester.start(group(once=ONCE))
    tester.kafka.delete_topic("g-ids")
    tester.start(group(once=ONCE))  # a new topic begins without ids, as the error says
    tester.emit(EVENTS, "k", {"id": 2})
    tester.emit(EVENTS, "k", {"id": 2})
    assert tester.table(group()) == {"k": 3}


def test_once_that_comes_back_before_an_event_was_handled_knows_all_ids(tester: Tester) -> None:
    tester.run(group(once=ONCE))
    tester.emit(EVENTS, "k", {"id": 1})
    tester.stop(group(once=ONCE))
    tester.start(group())
    tester.stop(group())
    tester.start(group(once=ONCE))
    tester.emit(EVENTS, "k", {"id": 1})
    assert tester.table(group()) == {"k": 1}


def test_once_of_another_input_begins_when_it_is_declared(tester: Tester) -> None:
    others = Stream("others", String(), Json())

    def both(*, other: bool) -> Group[str, Any]:
        second = Input(others, count, once=ONCE if other else None)
        return Group("g", Input(EVENTS, count, once=ONCE), second, Persist(Long()))

    tester.run(both(other=False))
    tester.emit(EVENTS, "k", {"id": 1})
    tester.emit(others, "k", {"id": 1})
    tester.stop(both(other=False))
    tester.start(both(other=True))
    for _ in range(2):
        tester.emit(others, "k", {"id": 1})
        tester.emit(EVENTS, "k", {"id": 1})
    assert tester.table(both(other=True)) == {"k": 3}


# ---- a crash at the start of a version ----------------------------------------------------------------------------------


@pytest.mark.parametrize("step", COMMIT_STEPS)
@pytest.mark.parametrize("times", [1, 2])
def test_a_table_that_is_new_is_not_refused_wherever_its_first_version_was_killed(
    tester: Tester, step: str, times: int
) -> None:
    def with_state(ctx: Context[str, int], event: Any) -> None:
        count(ctx, event)
        table = ctx.table(SUMS)
        table.put(ctx.key, (table.get(ctx.key) or 0) + 1)

    added = Group("g", Input(EVENTS, with_state), Persist(Long()), SUMS)
    tester.run(group())
    tester.emit(EVENTS, "k", {})
    tester.stop(group())
    tester.crash(added, at=step, times=times)
    tester.start(added)
    tester.emit(EVENTS, "k", {})
    tester.start(added, disk=False)
    tester.advance(60)
    tester.emit(EVENTS, "k", {})
    assert (tester.table(added), tester.table(added, SUMS)) == ({"k": 3}, {"k": 2})


# ---- tables that are joined ---------------------------------------------------------------------------------------------

NAMES = Table("names", String(), Json())


def joining(*edges: Any, kept: bool = True) -> Group[str, Any]:
    handler = count if kept else (lambda _, __: None)
    return Group("g", Input(EVENTS, handler), *edges, *([Persist(Long())] if kept else []))


def change(_: Any, __: Any) -> None:
    """Handle a change of a name."""


def test_a_joined_table_that_has_changed_is_no_gap_of_another_table(tester: Tester) -> None:
    tester.kafka.create_topic("names", compacted=True)
    tester.run(joining(Join(NAMES)))
    tester.emit(EVENTS, "k", {})
    tester.stop(joining(Join(NAMES)))
    tester.start(joining(Join(NAMES), kept=False))
    tester.emit_raw("names", b"k", b"1")
    tester.stop(joining(Join(NAMES)))
    tester.start(joining(Join(NAMES)))
    tester.emit(EVENTS, "k", {})
    tester.stop(joining(Join(NAMES)))
    tester.start(joining(Changes(NAMES, change)))  # from now on, as before
    assert tester.table(joining(Join(NAMES))) == {"k": 2}


def test_changes_that_were_not_handled_for_a_while_are_a_gap(tester: Tester) -> None:
    tester.kafka.create_topic("names", compacted=True)
    tester.run(joining(Changes(NAMES, change)))
    tester.emit_raw("names", b"k", b"1")
    tester.stop(joining(Changes(NAMES, change)))
    tester.start(joining(Join(NAMES)))
    tester.emit_raw("names", b"k", b"2")
    tester.stop(joining(Join(NAMES)))
    with pytest.raises(StateLost, match=r"'names' up to offset.*\(g-handled\[0\]\)"):
        tester.start(joining(Changes(NAMES, change)))
