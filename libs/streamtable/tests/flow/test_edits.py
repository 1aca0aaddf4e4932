"""A running flow is edited: its state is kept where it means the same, and a start is refused where it does not."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from streamtable import Avro, Context, Group, Input, Long, Once, Persist, Stream, String
from streamtable.engine.named import meanings
from streamtable.errors import StateLost, StateMeaningChanged
from streamtable.flow import Flow, Hopping, KeyedStream, KeyedTable, Session, Sliding, Tumbling
from streamtable_testing.tester import Tester

NUMBERS = Stream("numbers", String(), Long())
OUT = Stream("out", String(), Long())
MINUTE = Tumbling(timedelta(minutes=1), grace=timedelta(seconds=10))
EVENTS = [("a", 1), ("b", 2), ("a", 3)]

Build = Callable[[Flow], KeyedTable[Any, Any]]


def stream(flow: Flow) -> KeyedStream[str, int]:
    return flow.stream(NUMBERS, time=lambda value: value * 1000)


def before(flow: Flow) -> KeyedTable[Any, Any]:
    """The flow as it runs first."""
    return stream(flow).filter(bool).group_by("digit", str, key=String()).window(MINUTE).count("counts")


def with_more_steps(flow: Flow) -> KeyedTable[Any, Any]:
    numbers = stream(flow).peek(lambda key, value: None).filter(bool).map_values(lambda v: v, value=Long())
    again = numbers.group_by("digit", str, key=String())
    return again.window(MINUTE).count("counts")


def with_fewer_steps(flow: Flow) -> KeyedTable[Any, Any]:
    return stream(flow).group_by("digit", str, key=String()).window(MINUTE).count("counts")


def with_another_table(flow: Flow) -> KeyedTable[Any, Any]:
    grouped = stream(flow).filter(bool).group_by("digit", str, key=String())
    grouped.sum("sums", lambda v: v)
    return grouped.window(MINUTE).count("counts")


def with_another_branch_before(flow: Flow) -> KeyedTable[Any, Any]:
    numbers = stream(flow)
    numbers.key_by("other", lambda v: v, key=Long()).group_by_key().count("others")
    numbers.to(OUT)
    return numbers.filter(bool).group_by("digit", str, key=String()).window(MINUTE).count("counts")


def with_a_consumer_of_the_table(flow: Flow) -> KeyedTable[Any, Any]:
    table = stream(flow).filter(bool).group_by("digit", str, key=String()).window(MINUTE).count("counts")
    table.final().map(lambda window, n: (window.key, n)).to(OUT)
    return table


@pytest.mark.parametrize(
    "after",
    [with_more_steps, with_fewer_steps, with_another_table, with_another_branch_before, with_a_consumer_of_the_table],
)  # fmt: skip
def test_an_edit_that_leaves_names_and_meanings_keeps_the_state(tester: Tester, after: Build) -> None:
    first = Flow("f")
    table = before(first)
    run(tester, first)
    for group in first.groups:
        tester.leave(group)
    second = Flow("f")
    edited = after(second)
    assert edited.table.name == table.table.name
    rerun(tester, first, second)
    tester.emit_many(NUMBERS, EVENTS)
    assert {key.key: n for key, n in tester.table(edited.table).items()} == {"1": 2, "2": 2, "3": 2}


def with_another_size(flow: Flow) -> KeyedTable[Any, Any]:
    hour = Tumbling(timedelta(hours=1), grace=timedelta(seconds=10))
    return stream(flow).filter(bool).group_by("digit", str, key=String()).window(hour).count("counts")


def with_another_kind_of_window(flow: Flow) -> KeyedTable[Any, Any]:
    hopping = Hopping(timedelta(minutes=1), timedelta(seconds=30), grace=timedelta(seconds=10))
    return stream(flow).filter(bool).group_by("digit", str, key=String()).window(hopping).count("counts")


def with_sessions(flow: Flow) -> KeyedTable[Any, Any]:
    session = Session(timedelta(minutes=1), grace=timedelta(seconds=10))
    return stream(flow).filter(bool).group_by("digit", str, key=String()).window(session).count("counts")


def with_another_operator(flow: Flow) -> KeyedTable[Any, Any]:
    grouped = stream(flow).filter(bool).group_by("digit", str, key=String())
    return grouped.window(MINUTE).sum("counts", lambda v: v)


def with_another_codec(flow: Flow) -> KeyedTable[Any, Any]:
    grouped = stream(flow).filter(bool).group_by("digit", str, key=String())
    return grouped.window(MINUTE).count("counts", value=Avro("long"))


def without_windows(flow: Flow) -> KeyedTable[Any, Any]:
    return stream(flow).filter(bool).group_by("digit", str, key=String()).count("counts")


def with_another_key(flow: Flow) -> KeyedTable[Any, Any]:
    numbers = stream(flow).filter(bool).group_by("digit", lambda v: v, key=Long())
    return numbers.window(MINUTE).count("counts")


def with_sliding_windows(flow: Flow) -> KeyedTable[Any, Any]:
    sliding = Sliding(timedelta(minutes=1), grace=timedelta(0))
    return stream(flow).filter(bool).group_by("digit", str, key=String()).window(sliding).count("counts")


def with_another_grace(flow: Flow) -> KeyedTable[Any, Any]:
    longer = Tumbling(timedelta(minutes=1), grace=timedelta(minutes=1))
    return stream(flow).filter(bool).group_by("digit", str, key=String()).window(longer).count("counts")


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (with_another_size, "3600000 ms"),
        (with_another_kind_of_window, "hopping windows"),
        (with_sessions, "sessions with a gap"),
        (with_sliding_windows, "sliding windows of 60000 ms"),
        (with_another_operator, "sum in tumbling"),
        (with_another_codec, "Avro"),
        (without_windows, "count"),
        (with_another_grace, "grace of 60000 ms"),
    ],
)
def test_an_edit_that_changes_what_a_name_means_is_refused_at_the_start(
    tester: Tester, after: Build, reason: str
) -> None:
    first = Flow("f")
    table = before(first)
    run(tester, first)
    kept = tester.table(table.table)
    for group in first.groups:
        tester.leave(group)
    second = Flow("f")
    after(second)
    with pytest.raises(StateMeaningChanged, match=reason) as refused:
        rerun(tester, first, second)
    assert "count in tumbling windows of 60000 ms" in str(refused.value)
    # The command needs both options: what the error says can be pasted.
    assert f"group reset {refused.value.group} --to earliest --empty-table" in str(refused.value)
    # The first group of a flow keeps no table, and the others begin at the end: the page has the order.
    assert "for a group of a flow docs/explanation/flows.md#process-history-again" in str(refused.value)
    assert tester.table(table.table) == kept


def counted_by(value: Any, key: Any) -> Callable[[Flow], object]:
    def build(flow: Flow) -> object:
        of_digit = (lambda v: v) if isinstance(key, Long) else str
        return stream(flow).group_by("digit", of_digit, key=key, value=value).count("counts")

    return build


@pytest.mark.parametrize(
    ("key", "value", "declared"),
    [
        (String(), Avro("double"), "codecs [-_A-Za-z0-9]{8}"),
        (Long(), Long(), r"Long\(\) to Long\(\)"),
    ],
)
def test_another_codec_of_an_inner_topic_is_refused_since_records_may_be_unread(
    tester: Tester, key: Any, value: Any, declared: str
) -> None:
    first, second = Flow("f"), Flow("f")
    counted_by(Long(), String())(first)
    run(tester, first)
    for group in first.groups:
        tester.leave(group)
    counted_by(value, key)(second)
    with pytest.raises(
        StateMeaningChanged,
        match=rf"inner topic of group 'f' means .{declared}., but records in it were written as "
        r"'String\(\) to Long\(\)'. Give the step a new name.*\(f-digit",
    ):
        rerun(tester, first, second)


class Plain(String):
    """A codec without a text of its own, as user code has them."""

    __repr__ = object.__repr__


def by_plain_keys(flow: Flow) -> KeyedTable[Any, Any]:
    return stream(flow).group_by("digit", str, key=Plain()).window(MINUTE).count("counts")


def test_a_codec_without_a_text_of_its_own_means_the_same_at_the_next_start(tester: Tester) -> None:
    first, second = Flow("f"), Flow("f")
    table = by_plain_keys(first)
    run(tester, first)
    for group in first.groups:
        tester.leave(group)
    by_plain_keys(second)
    rerun(tester, first, second)
    tester.emit_many(NUMBERS, EVENTS)
    assert sum(tester.table(table.table).values()) == 2 * len(EVENTS)


OTHERS = Stream("others", String(), Long())
NOTHING = timedelta(0)
Edit = Callable[[Any, Any], Any]


def sides_of(flow: Flow) -> tuple[Any, Any]:
    return stream(flow), flow.stream(OTHERS, time=lambda value: value * 1000)


def pair(left: Any, right: Any) -> list[Any]:
    return [left, right]


def both(one: Any, other: Any) -> Any:
    return one.merge(other).map_values(lambda value: value, value=Long())


def of_streams(one: Any, other: Any) -> Any:
    return one.left_join("j", other, pair, within=timedelta(minutes=1), grace=NOTHING)


def of_tables(one: Any, other: Any) -> Any:
    return one.left_join("j", other, pair)


def tables(join: Edit) -> Edit:
    return lambda a, b: join(a.to_table("a"), b.to_table("b"))


def windows(join: Edit) -> Edit:
    return lambda a, b: join(
        a.group_by_key().window(MINUTE).count("a"), b.group_by_key().window(MINUTE).count("b")
    )


def with_another_table_of_the_same_input(a: Any, b: Any) -> Any:
    a.to_table("a")
    return of_tables(a.group_by_key().count("n"), b.to_table("b"))


@pytest.mark.parametrize(
    ("before", "after", "recorded", "declared"),
    [
        (of_streams, lambda a, b: of_streams(b, a), "numbers with others", "others with numbers"),
        (
            tables(of_tables),
            tables(lambda a, b: of_tables(b, a)),
            "changes of a with b",
            "changes of b with a",
        ),
        (
            windows(of_tables),
            windows(lambda a, b: of_tables(b, a)),
            "changes of a with b",
            "changes of b with a",
        ),
        (
            tables(of_tables),
            with_another_table_of_the_same_input,
            "changes of a with b",
            "changes of n with b",
        ),
    ],
)
def test_a_join_whose_sides_have_other_tables_or_streams_is_refused(
    tester: Tester, before: Edit, after: Edit, recorded: str, declared: str
) -> None:
    first, second = Flow("f"), Flow("f")
    before(*sides_of(first))
    run(tester, first)
    tester.emit_many(OTHERS, EVENTS)
    for group in first.groups:
        tester.leave(group)
    after(*sides_of(second))
    with pytest.raises(StateMeaningChanged) as refused:
        rerun(tester, first, second)
    assert (refused.value.state, refused.value.recorded) == ("j", recorded)
    assert refused.value.declared == declared


def test_the_sides_of_a_join_may_get_steps_and_streams_and_lose_them(tester: Tester) -> None:
    edits: list[Edit] = [
        of_streams,
        lambda a, b: of_streams(both(a.filter(bool), b), b.peek(lambda key, value: None)),
        lambda a, b: of_streams(a, both(b, a)),
        of_streams,
        lambda a, b: of_streams(a, b.key_by("by", str, key=String(), beside=a)),
    ]
    last = None
    for edit in edits:
        flow = Flow("f")
        edit(*sides_of(flow)).map(lambda key, sides: (key, sum(filter(None, sides)))).to(OUT)
        if last is None:
            tester.run(flow)
        else:
            for group in last.groups:
                tester.leave(group)
            rerun(tester, last, flow)
        last = flow
        tester.emit(NUMBERS, "a", 1)
        tester.emit(OTHERS, "a", 10)
    assert len(tester.records(OUT)) > len(edits)


Step = Callable[[Any], Any]


def grouped(table: Any) -> None:
    table.group_by("g", lambda value: "all", key=String()).count("all")


def joined(table: Any) -> None:
    table.left_join("j", table, pair)


def joined_by_foreign_key(table: Any) -> None:
    table.left_join("j", table, pair, on=str)


def kept_again(table: Any) -> None:
    table.to_stream().to_table("kept")


def mapped(table: Any) -> Any:
    return table.map_values(abs, value=Long())


@pytest.mark.parametrize("behind", [grouped, joined, joined_by_foreign_key, kept_again])
@pytest.mark.parametrize(
    ("before", "after", "recorded", "declared"),
    [
        (lambda t: t, lambda t: t.filter(bool), "last", "last then filter"),
        (lambda t: t.filter(bool), lambda t: t, "last then filter", "last"),
        (
            lambda t: mapped(t.filter(bool)),
            mapped,
            "last then filter then map_values",
            "last then map_values",
        ),
    ],
)
def test_a_step_without_a_name_behind_a_table_is_refused_where_rows_have_come_through_others(
    tester: Tester, behind: Step, before: Step, after: Step, recorded: str, declared: str
) -> None:
    first = Flow("f")
    behind(before(stream(first).to_table("last")))
    run(tester, first)
    with pytest.raises(StateMeaningChanged, match=r"Restore the steps.*group reset f") as refused:
        rerun_as(tester, first, lambda flow: behind(after(stream(flow).to_table("last"))))
    assert refused.value.recorded.split(" with ")[0] == f"changes of {recorded}"
    assert refused.value.declared.split(" with ")[0] == f"changes of {declared}"


def test_windows_of_which_a_step_behind_takes_others_are_refused_too(tester: Tester) -> None:
    first = Flow("f")
    grouped(stream(first).group_by_key().window(MINUTE).count("n").filter(bool))
    run(tester, first)
    with pytest.raises(StateMeaningChanged, match=r"'changes of n', but .* 'changes of n then filter'"):
        rerun_as(tester, first, lambda flow: grouped(stream(flow).group_by_key().window(MINUTE).count("n")))


def test_steps_behind_a_table_that_an_earlier_version_has_not_recorded_are_accepted(
    tester: Tester, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Flow("f")
    grouped(stream(first).to_table("last"))
    monkeypatch.setattr("streamtable.engine.recovery.declared.bounded_meaning", lambda _: "")
    run(tester, first)
    monkeypatch.undo()
    rerun_as(tester, first, lambda flow: grouped(stream(flow).to_table("last").filter(bool)))


def test_steps_behind_to_stream_handle_records_and_may_come_and_go(tester: Tester) -> None:
    first = Flow("f")
    stream(first).to_table("last").to_stream().group_by_key().count("n")
    run(tester, first)
    second = rerun_as(
        tester,
        first,
        lambda flow: stream(flow).to_table("last").to_stream().filter(bool).group_by_key().count("n"),
    )
    rerun_as(
        tester,
        second,
        lambda flow: stream(flow).to_table("last").filter(bool).to_stream().group_by_key().count("n"),
    )


def counted(flow: Flow, time: Callable[[int], int] | None = None) -> KeyedTable[Any, Any]:
    return flow.stream(NUMBERS, time=time).group_by_key().window(MINUTE).count("n")


def by_value(value: int) -> int:
    return value * 1000


@pytest.mark.parametrize(("before", "after"), [(None, by_value), (by_value, None)])
def test_a_stream_whose_event_time_comes_from_elsewhere_is_refused_since_its_events_would_be_late(
    tester: Tester, before: Any, after: Any
) -> None:
    first = Flow("f")
    counted(first, before)
    run(tester, first)
    with pytest.raises(
        StateMeaningChanged, match=r"the event time of an input .* another name.*\(numbers\)"
    ) as refused:
        rerun_as(tester, first, lambda flow: counted(flow, after))
    texts = {None: "timestamps", by_value: "time="}
    assert (refused.value.state, refused.value.recorded) == ("event time", texts[before])
    assert refused.value.declared == texts[after]
    # Another function cannot be seen.
    rerun_as(tester, first, lambda flow: counted(flow, before and (lambda value: value)))


def test_event_time_may_come_from_elsewhere_as_long_as_nothing_has_followed_it(tester: Tester) -> None:
    first = Flow("f")
    first.stream(NUMBERS).group_by_key().count("all")
    run(tester, first)
    rerun_as(tester, first, lambda flow: counted(flow, by_value))
    tester.emit_many(NUMBERS, EVENTS)
    assert sum(tester.table(counted(Flow("f")).table).values()) == len(EVENTS)


def live(*steps: str, name: str = "n") -> Callable[[Flow], object]:
    def build(flow: Flow) -> object:
        table = stream(flow).group_by_key().count(name)
        for step in steps:
            table = table.filter(bool) if step == "filter" else table.map_values(abs, value=Long())
        return table.every("live", timedelta(seconds=5))

    return build


@pytest.mark.parametrize(
    ("before", "after"),
    [((), ("filter",)), (("filter",), ()), (("filter", "map_values"), ("map_values",))],
)
def test_steps_before_every_are_added_and_removed(
    tester: Tester, before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    first = Flow("f")
    live(*before)(first)
    run(tester, first)
    second = rerun_as(tester, first, live(*after))
    with pytest.raises(StateMeaningChanged, match=r"changes of count 'n', emitted every 5000 ms"):
        rerun_as(tester, second, live(name="another"))


def test_a_step_before_every_that_an_earlier_version_has_recorded_is_accepted(
    tester: Tester, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = Flow("f")
    live()(flow)
    declared = meanings.meaning_of
    monkeypatch.setattr(
        meanings, "meaning_of", lambda state: declared(state).replace("of count 'n',", "of filter,")
    )
    run(tester, flow)
    monkeypatch.undo()
    rerun_as(tester, flow, live("map_values"))


def rerun_as(tester: Tester, first: Flow, build: Callable[[Flow], object]) -> Flow:
    """Run another flow in place of the first."""
    for group in first.groups:
        tester.leave(group)
    second = Flow("f")
    build(second)
    rerun(tester, first, second)
    return second


def run(tester: Tester, flow: Flow) -> None:
    tester.run(flow)
    tester.emit_many(NUMBERS, EVENTS)


def rerun(tester: Tester, first: Flow, second: Flow) -> None:
    """Start another flow in place of the first, on empty disks: all that is known of it is in Kafka."""
    for group in first.groups:
        del tester._instances[group.name]
    tester.run(second)


def with_two_counts(flow: Flow) -> KeyedTable[Any, Any]:
    grouped = flow.stream(NUMBERS).group_by_key()
    grouped.count("all")
    return grouped.count("again")


def with_one_of_the_counts(flow: Flow) -> KeyedTable[Any, Any]:
    return flow.stream(NUMBERS).group_by_key().count("all")


def test_a_table_that_a_version_in_between_did_not_keep_is_refused(tester: Tester) -> None:
    first, between, again = Flow("f"), Flow("f"), Flow("f")
    kept = with_two_counts(first)
    run(tester, first)
    tester.leave(first.group())
    with_one_of_the_counts(between)
    rerun(tester, first, between)
    tester.emit_many(NUMBERS, EVENTS)
    tester.leave(between.group())
    with_two_counts(again)
    with pytest.raises(StateLost, match=r"gone on without it.*new name.*group reset f .*\(f-again\[0\]\)"):
        rerun(tester, between, again)
    assert tester.table(kept.table) == {"a": 2, "b": 1}


def test_a_table_comes_back_with_all_of_its_rows_after_a_version_without_it_that_has_handled_nothing(
    tester: Tester,
) -> None:
    first, between, again = Flow("f"), Flow("f"), Flow("f")
    with_two_counts(first)
    run(tester, first)
    tester.leave(first.group())
    with_one_of_the_counts(between)
    rerun(tester, first, between)
    tester.leave(between.group())
    kept = with_two_counts(again)
    rerun(tester, between, again)
    tester.emit_many(NUMBERS, EVENTS)
    assert tester.table(kept.table) == {"a": 4, "b": 2}


def counting(*, kept: bool) -> Group[str, int]:
    def count(ctx: Context[str, int], number: int) -> None:
        if kept:
            ctx.set((ctx.value or 0) + number)

    return Group("g", Input(NUMBERS, count), *((Persist(Long()),) if kept else ()))


@pytest.mark.parametrize("disk", [True, False])
def test_a_groups_own_table_that_a_version_in_between_did_not_keep_is_refused(
    tester: Tester,
    disk: bool,  # noqa: FBT001 - pytest gives by name
) -> None:
    tester.run(counting(kept=True))
    tester.emit_many(NUMBERS, EVENTS)
    tester.stop(counting(kept=True))
    tester.start(counting(kept=False), disk=disk)
    tester.stop(counting(kept=True))
    tester.start(counting(kept=True), disk=disk)  # nothing was handled without it
    assert tester.table(counting(kept=True)) == {"a": 4, "b": 2}
    tester.emit_many(NUMBERS, EVENTS)
    assert tester.table(counting(kept=True)) == {"a": 8, "b": 4}
    tester.stop(counting(kept=True))
    tester.start(counting(kept=False), disk=disk)
    tester.emit_many(NUMBERS, EVENTS)
    tester.stop(counting(kept=True))
    with pytest.raises(StateLost, match=r"Either delete the topic.*group reset g .*\(g-table\[0\]\)"):
        tester.start(counting(kept=True), disk=disk)


def test_tables_that_are_left_are_warned_of_once_and_one_that_was_made_again_begins_empty(
    tester: Tester,
) -> None:
    first, between, again = Flow("f"), Flow("f"), Flow("f")
    with_two_counts(first)
    run(tester, first)
    tester.leave(first.group())
    with_one_of_the_counts(between)
    with capture_logs() as logs:
        rerun(tester, first, between)
    (warned,) = (each["topics"] for each in logs if each["event"].startswith("tables are left"))
    assert warned == ["f-again"]
    tester.emit_many(NUMBERS, EVENTS)
    tester.leave(between.group())
    tester.kafka.delete_topic("f-again")
    kept = with_two_counts(again)
    rerun(tester, between, again)
    tester.emit_many(NUMBERS, EVENTS)
    assert tester.table(kept.table) == {"a": 2, "b": 1}


@pytest.mark.parametrize(("name", "tables", "inner"), [("f" * 100, 9, 0), ("f", 1, 30)])
def test_ids_that_were_left_are_known_beside_long_names_and_many_inner_topics(
    tester: Tester, name: str, tables: int, inner: int
) -> None:
    def version(*, once: bool, inner: int = 0) -> Group[Any, Any]:
        flow = Flow(name)
        numbers = flow.stream(NUMBERS, once=Once(str, within=timedelta(hours=1)) if once else None)
        for number in range(tables):
            numbers.group_by_key().count(f"table-number-{number}")
        for number in range(inner):
            numbers.group_by(f"by-{number}", str, key=String()).count(f"per-{number}")
        return flow.group()

    first, second = version(once=True, inner=inner), version(once=False)
    tester.run(first)
    tester.emit(NUMBERS, "a", 1)
    tester.stop(first)
    tester.start(second)
    tester.emit(NUMBERS, "a", 2)
    tester.stop(second)
    with pytest.raises(StateLost, match="the group has kept this table, and has gone on without it"):
        tester.start(version(once=True))
