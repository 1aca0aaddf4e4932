"""Joins of a stream with a table through the engine, without a broker: with the current row, and the row as of a record's time."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from streamtable import Group, Input, Json, Persist, Stream, String, Table
from streamtable.errors import GraphError, StateMeaningChanged
from streamtable.flow import Flow
from streamtable_testing.tester import Tester

# A value is a text and a time. A change to an empty text is a deletion.
CLICKS: Stream[str, Any] = Stream("clicks", String(), Json())
USERS: Stream[str, Any] = Stream("users", String(), Json())
OUT: Stream[str, Any] = Stream("out", String(), Json())
JSON: Any = Json()


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def texts(click: Any, user: Any) -> Any:
    return [click[0], None if user is None else user[0]]


def flow_of(operator: str, *, history: int = 30, grace: int = 5) -> Flow:
    flow = Flow("f")
    users = flow.stream(USERS, time=lambda value: value[1])
    table = users.map_values(lambda v: v if v[0] else None, value=JSON).to_table("users-now", value=JSON)
    clicks = flow.stream(CLICKS, time=lambda value: value[1])
    if "as_of" in operator:
        as_of = clicks.join_as_of if operator == "join_as_of" else clicks.left_join_as_of
        as_of("with-user", table, texts, history=ms(history), grace=ms(grace)).to(OUT)
    else:
        now = clicks.join_table if operator == "join_table" else clicks.left_join_table
        now(table, texts).to(OUT)
    return flow


def emit(tester: Tester, *events: tuple[str, str, str, int]) -> None:
    """Emit events: "c" for a click or "u" for a user, the key, the text, the time."""
    for stream, key, text, time in events:
        tester.emit(CLICKS if stream == "c" else USERS, key, [text, time])


def written(tester: Tester) -> list[tuple[Any, ...]]:
    return [(each.key, *(each.value or ()), each.timestamp_ms) for each in tester.records(OUT)]


END = [("c", "end of c", "end", 10_000), ("u", "end of u", "end", 10_000)]


# ---- now --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("join_table", [("a", "2", "x", 20), ("a", "3", "y", 10)]),
        (
            "left_join_table",
            [("a", "1", None, 5), ("a", "2", "x", 20), ("a", "3", "y", 10), ("a", "4", None, 40)],
        ),
    ],
)
def test_a_record_is_joined_with_the_row_that_is_there_when_it_comes(
    tester: Tester, operator: str, expected: Any
) -> None:
    tester.run(flow_of(operator))
    emit(tester, ("c", "a", "1", 5), ("u", "a", "x", 10), ("c", "a", "2", 20), ("u", "a", "y", 30))
    emit(tester, ("c", "a", "3", 10), ("u", "a", "", 35), ("c", "a", "4", 40))
    assert written(tester) == expected


def test_a_record_is_joined_with_the_row_of_another_groups_table(tester: Tester) -> None:
    users = Group("u", Input(USERS, lambda ctx, value: ctx.set(value)), Persist(JSON))
    flow = Flow("f")
    table = flow.table(Table("u-table", String(), JSON, group="u"))
    flow.stream(CLICKS).left_join_table(table, texts).to(OUT)
    (group,) = flow.groups
    assert [edge.table.name for edge in group.joins] == ["u-table"]
    assert not group.changes, "nothing follows the changes"
    tester.run(users, flow)
    emit(tester, ("u", "a", "x", 10), ("c", "a", "1", 5))
    assert [each[:3] for each in written(tester)] == [("a", "1", "x")]


def test_a_table_is_read_and_followed_at_once(tester: Tester) -> None:
    users = Group("u", Input(USERS, lambda ctx, value: ctx.set(value)), Persist(JSON))
    flow = Flow("f")
    table = flow.table(Table("u-table", String(), JSON, group="u"))
    flow.stream(CLICKS).join_table(table, texts).to(OUT)
    kept = table.map_values(lambda user: user[0]).to_stream().to_table("names", value=String())
    tester.run(users, flow)
    emit(tester, ("u", "a", "x", 10), ("c", "a", "1", 5))
    assert [each[:3] for each in written(tester)] == [("a", "1", "x")]
    assert tester.table(kept.table) == {"a": "x"}


def test_a_join_is_drawn_with_the_table_that_it_reads() -> None:
    description = flow_of("join_table").describe()
    assert "join_table with to_table 'users-now'" in str(description)
    assert "-.->" in description.mermaid


def test_rows_that_nobody_keeps_cannot_be_joined() -> None:
    flow = Flow("f")
    view = flow.stream(USERS).to_table("t").filter(bool)
    with pytest.raises(GraphError, match="not kept"):
        flow.stream(CLICKS).join_table(view, texts)
    other = flow.stream(USERS, group="other").to_table("t2")
    with pytest.raises(GraphError, match="partitioned differently"):
        flow.stream(CLICKS).join_table(other, texts)


# ---- as of the record's time --------------------------------------------------------------------------------------------------


def test_a_record_is_joined_with_the_row_of_its_event_time(tester: Tester) -> None:
    tester.run(flow_of("left_join_as_of"))
    emit(tester, ("u", "a", "x", 10), ("u", "a", "y", 20), ("u", "a", "", 30))
    emit(tester, *(("c", "a", str(time), time) for time in (9, 10, 19, 20, 29, 30)), *END)
    assert [each[1:] for each in written(tester)] == [
        ("9", None, 9), ("10", "x", 10), ("19", "x", 19), ("20", "y", 20), ("29", "y", 29), ("30", None, 30)
    ]  # fmt: skip


def test_a_record_without_a_row_is_left_out_of_an_inner_join(tester: Tester) -> None:
    tester.run(flow_of("join_as_of"))
    emit(tester, ("c", "a", "1", 5), ("u", "a", "x", 10), ("c", "a", "2", 20), *END)
    assert written(tester) == [("a", "2", "x", 20)]


def test_a_record_waits_for_the_table_to_reach_its_time_and_the_grace(tester: Tester) -> None:
    tester.run(flow_of("join_as_of"))
    emit(tester, ("u", "a", "x", 10), ("c", "a", "1", 20), ("c", "z", "z", 1_000), ("u", "z", "z", 25))
    assert written(tester) == []
    emit(tester, ("u", "a", "y", 20), ("u", "z", "z", 26))
    assert written(tester) == [("a", "1", "y", 20)]


def test_the_row_is_known_after_its_history_has_expired_and_old_versions_are_gone(tester: Tester) -> None:
    tester.run(flow_of("join_as_of"))
    emit(tester, *(("u", "a", str(time), time) for time in range(10, 20)))
    emit(tester, ("c", "y", "z", 1_000), ("u", "z", "z", 1_000), ("c", "a", "1", 1_001), *END)
    assert written(tester) == [("a", "1", "19", 1_001)]
    last = {message.key(): message.value() for _, message in tester.kafka.records("f-with-user")}
    mine = [key for key, data in last.items() if data is not None and (key or b"").startswith(b"a")]
    assert len(mine) == 1


def test_of_many_changes_at_one_time_the_last_counts(tester: Tester) -> None:
    """They are as old as the record, and more than are looked at together when their time is over."""
    tester.run(flow_of("join_as_of", history=0, grace=0))
    emit(tester, *(("u", "a", str(number), 20) for number in range(200)), ("c", "a", "1", 20), *END)
    assert written(tester) == [("a", "1", "199", 20)]


def test_a_record_that_is_older_than_the_history_finds_no_row(tester: Tester) -> None:
    tester.run(flow_of("left_join_as_of"))
    emit(tester, ("u", "a", "x", 10), ("c", "z", "z", 100), ("u", "z", "z", 100))
    emit(tester, ("c", "a", "in time", 71), ("c", "a", "late", 70), *END)
    assert Counter(each for each in written(tester) if each[0] == "a") == Counter(
        [("a", "in time", "x", 71), ("a", "late", None, 70)]
    )


@pytest.mark.parametrize("operator", ["join_as_of", "left_join_as_of"])
def test_versions_and_records_that_come_too_late_are_counted(operator: str) -> None:
    registry = CollectorRegistry()
    with patch("streamtable_testing.instance.CollectorRegistry", lambda: registry), Tester() as tester:
        tester.run(flow_of(operator))

        def late() -> float:
            return sum(
                sample.value
                for metric in registry.collect()
                for sample in metric.samples
                if sample.name == "streamtable_late_records_total" and sample.labels["topic"] == "f-with-user"
            )

        emit(tester, ("u", "a", "x", 10), ("c", "a", "1", 20), ("u", "z", "z", 100))
        emit(tester, ("u", "a", "in time", 95))
        assert late() == 0
        emit(tester, ("u", "a", "late", 94))
        assert late() == 1
        emit(tester, ("c", "z", "z", 100), ("c", "a", "in time", 71))
        assert late() == 1
        emit(tester, ("c", "a", "older than the history", 70), *END)
        assert late() == 2
        joined = {text: user for key, text, user, _ in written(tester) if key == "a"}
    assert joined.pop("older than the history", None) is None
    assert joined == {"1": "x", "in time": "x"}


def test_a_version_that_comes_too_late_counts_from_the_time_less_the_grace(tester: Tester) -> None:
    """The rule of the page of intended differences: records before that have been joined already, or might have been."""
    tester.run(flow_of("left_join_as_of"))
    emit(tester, ("u", "a", "x", 10), ("u", "z", "z", 100), ("u", "a", "late", 20))
    emit(tester, ("c", "a", "before", 94), ("c", "a", "after", 95), *END)
    assert [each[:3] for each in written(tester) if each[0] == "a"] == [
        ("a", "before", "x"), ("a", "after", "late")
    ]  # fmt: skip


@pytest.mark.parametrize(("history", "grace", "now"), [(31, 5, "history of 31 ms"), (30, 6, "grace of 6 ms")])
def test_a_join_that_means_something_else_under_its_name_is_refused_at_the_start(
    tester: Tester, history: int, grace: int, now: str
) -> None:
    first = flow_of("join_as_of")
    tester.run(first)
    emit(tester, ("c", "a", "c", 100))
    tester.leave(first.group())
    del tester._instances[first.name]
    with pytest.raises(StateMeaningChanged, match=now):
        tester.run(flow_of("join_as_of", history=history, grace=grace))


def test_a_history_that_cannot_be_is_refused() -> None:
    with pytest.raises(GraphError, match="history"):
        flow_of("join_as_of", history=-1)


def test_a_table_whose_versions_depend_on_batches_cannot_be_joined_as_of_a_time() -> None:
    flow = Flow("f")
    counts = flow.stream(USERS).group_by_key().count("counts")
    with pytest.raises(GraphError, match="fall into batches"):
        flow.stream(CLICKS).join_as_of("j", counts, lambda click, n: n, history=ms(1), grace=ms(1))


@pytest.mark.parametrize(
    "changes",
    [
        lambda counts: counts.to_stream(),
        lambda counts: counts.filter(bool).to_stream().map_values(str, value=String()),
        lambda counts: counts.to_stream().repartition("r"),
    ],
)
def test_a_table_of_the_changes_of_an_aggregate_cannot_be_joined_as_of_a_time(changes: Any) -> None:
    """The number of its changes depends on batches, and so do the times of its rows."""
    flow = Flow("f")
    rows = changes(flow.stream(USERS).group_by_key().count("counts")).to_table("rows")
    clicks = flow.stream(CLICKS, group=rows.table.group.removeprefix("f").removeprefix("-"))
    with pytest.raises(
        GraphError, match=r"fall into batches.*to_table\(\) of a stream of events or of every"
    ):
        clicks.join_as_of("j", rows, lambda click, n: n, history=ms(1), grace=ms(1))


def test_neither_can_one_of_changes_that_are_read_from_their_topic_or_joined_by_a_foreign_key() -> None:
    flow = Flow("f")
    counts = flow.stream(USERS, group="g").group_by_key().count("counts")
    read = flow.stream(counts.to_stream().topic("changes")).to_table("read")
    users = flow.table(Table("u-table", String(), JSON))
    joined = users.join("rows", counts, lambda user, n: n, on=str, value=JSON).to_stream().to_table("joined")
    for each in (read, joined):
        with pytest.raises(GraphError, match="fall into batches"):
            flow.stream(CLICKS).join_as_of("j", each, lambda click, n: n, history=ms(1), grace=ms(1))


def joined_tables(flow: Flow) -> Any:
    users, cities = (flow.table(Table(name, String(), JSON)) for name in ("u-table", "c-table"))
    return users.join("both", cities, lambda *rows: list(rows), value=JSON).to_stream()


@pytest.mark.parametrize(
    "made",
    [
        joined_tables,
        lambda flow: flow.stream(USERS).group_by_key().count("counts").every("e", ms(1)),
        lambda flow: flow.table(Table("u-table", String(), JSON, group="u")).filter(bool).to_stream(),
    ],
)
def test_a_table_whose_versions_are_the_same_in_any_batches_can_be_joined_as_of_a_time(made: Any) -> None:
    flow = Flow("f")
    rows = made(flow).to_table("rows")
    flow.stream(CLICKS).join_as_of("j", rows, lambda click, n: n, history=ms(1), grace=ms(1))
    assert flow.groups


def test_the_table_of_another_group_answers_as_of_the_times_of_its_topic(tester: Tester) -> None:
    table: Table[str, Any] = Table("u-table", String(), JSON, group="u")
    flow = Flow("f")
    clicks = flow.stream(CLICKS, time=lambda value: value[1])
    clicks.join_as_of("with-user", flow.table(table), texts, history=ms(100), grace=ms(5)).to(OUT)
    tester.create(Stream("u-table", String(), JSON))
    tester.run(flow)
    for text, time in (("x", 10), ("y", 20)):
        tester.emit_raw("u-table", b"a", JSON.encode([text, time]), timestamp_ms=time)
    emit(tester, ("c", "a", "1", 19), ("c", "a", "2", 20), ("c", "z", "z", 1_000))
    assert written(tester) == [("a", "1", "x", 19), ("a", "2", "y", 20)]


@pytest.mark.parametrize("together", [1, 5, 1_000])
@pytest.mark.parametrize("topic", ["a-users", "z-users"])  # read before the clicks, and after them
def test_a_backlog_is_joined_with_the_rows_of_its_times_if_the_tables_topic_is_read_as_a_stream(
    topic: str, together: int
) -> None:
    users, flow = Stream(topic, String(), JSON), Flow("f")
    rows = flow.stream(users, tombstones=True).to_table("users")
    flow.stream(CLICKS).left_join_as_of(
        "j", rows, lambda *both: list(both), history=ms(100_000), grace=ms(1)
    ).to(OUT)
    with Tester(poll_records=together, work_on_request=True) as tester:
        tester.create(users, CLICKS)
        for time in range(1_000, 20_000, 1_000):
            tester.emit(CLICKS, "a", [time], timestamp_ms=time)
            row = [time] if time % 5_000 else None
            tester.emit_raw(topic, b"a", None if row is None else JSON.encode(row), timestamp_ms=time - 500)
        tester.run(flow)
        tester.work()
        tester.advance(100)
        joined = [record.value for record in tester.records(OUT)]
    assert joined == [[[time], [time] if time % 5_000 else None] for time in range(1_000, 20_000, 1_000)]


# ---- independence of batches, restarts and the order of the inputs ----------------------------------------------------------------


Event = tuple[str, str, str, int]
events_of = st.lists(
    st.tuples(
        st.sampled_from("cu"), st.sampled_from("ab"), st.sampled_from(["x", "y", ""]), st.integers(1, 60)
    ),
    max_size=24,
)


def expected(events: Iterable[Event], history: int, grace: int) -> Counter[Any]:
    """The definition, record by record."""
    kept = max(history, grace + 1)
    seen = {"c": -1, "u": -1}
    versions: list[tuple[int, int, str, str]] = []
    clicks: list[tuple[str, str, int, int]] = []
    for stream, key, text, time in events:
        seen[stream] = max(seen[stream], time)
        if stream == "u":
            versions.append((max(time, seen["u"] - grace), time, key, text))
        else:
            clicks.append((key, text, time, seen["c"]))
    found: Counter[Any] = Counter()
    for key, text, time, bound in clicks:
        rows = [
            (at, number, row)
            for number, (since, at, of, row) in enumerate(versions)
            if of == key and since <= time
        ]
        known = rows and bound < time + kept
        found[key, text, (max(rows)[2] or None) if known else None, time] += 1
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(events_of, st.sampled_from([0, 10, 30]), st.sampled_from([0, 7]), st.data())
def test_rows_are_those_of_the_definition_however_the_input_is_divided_and_whatever_crashes(
    events: Sequence[Event], history: int, grace: int, data: st.DataObject
) -> None:
    bounds = [0, *sorted(data.draw(st.sets(st.integers(0, len(events))))), len(events)]
    restarts = data.draw(st.sets(st.integers(0, len(bounds))))
    failpoint = data.draw(st.sampled_from([None, "begun", "changelog-produced", "offsets-sent", "committed"]))
    flow = flow_of("left_join_as_of", history=history, grace=grace)
    with Tester(work_on_request=True) as tester:
        tester.run(flow)
        group = flow.group()
        for number, (begin, end) in enumerate(pairwise(bounds)):
            crash = number in restarts and end > begin
            if crash:
                tester.crash(group, at=failpoint)
            emit(tester, *events[begin:end])
            tester.work()
            if crash:
                tester.start(group, disk=number % 2 == 0)
                tester.work()
        emit(tester, *END)
        tester.work()
        found = Counter(each for each in written(tester) if each[0] in "ab")
        assert found == expected(events, history, grace)
