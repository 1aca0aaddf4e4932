"""Joins of tables through the engine, without a broker: joined rows follow both sides, and are taken back with them."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamtable import Group, Input, Json, Long, OnError, Persist, Stream, String, Table
from streamtable.base.ports import Decoded
from streamtable.base.types import Guarantee
from streamtable.errors import DeserializationError, Fatal, GraphError, StateMeaningChanged, TopicMismatch
from streamtable.flow import Flow, KeyedTable, Tumbling
from streamtable_testing.tester import Tester

USERS = Stream("users", String(), String())
CITIES = Stream("cities", String(), String())
OUT: Stream[str, Any] = Stream("out", String(), Json())
JSON: Any = Json()

Rows = Mapping[str, str]


def pair(left: Any, right: Any) -> Any:
    return [left, right]


def tables(flow: Flow) -> tuple[KeyedTable[str, str], KeyedTable[str, str]]:
    sides = [flow.stream(USERS), flow.stream(CITIES)]
    # None is written as an empty text: a record without a value is no event of a stream.
    kept = [
        side.map_values(lambda v: v or None).to_table(f"t{n}", value=String()) for n, side in enumerate(sides)
    ]
    return kept[0], kept[1]


def joined(operator: str, function: Callable[..., Any] = pair) -> tuple[Flow, KeyedTable[str, Any]]:
    flow = Flow("f")
    left, right = tables(flow)
    both: KeyedTable[str, Any] = getattr(left, operator)("both", right, function, value=JSON)
    both.to_stream().to(OUT)
    return flow, both


def emit(tester: Tester, *events: tuple[Stream[str, str], str, str | None]) -> None:
    for stream, key, value in events:
        tester.emit(stream, key, value or "")


def written(tester: Tester) -> list[tuple[Any, Any]]:
    return [(each.key, each.value) for each in tester.records(OUT)]


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("join", [["u", "c"], ["v", "c"], None, ["v", "d"], None]),
        ("left_join", [["u", None], ["u", "c"], ["v", "c"], ["v", None], ["v", "d"], None]),
        (
            "outer_join",
            [["u", None], ["u", "c"], ["v", "c"], ["v", None], ["v", "d"], [None, "d"], None],
        ),
    ],
)
def test_a_joined_row_follows_both_sides_and_is_taken_back_with_them(
    tester: Tester, operator: str, expected: Any
) -> None:
    flow, _ = joined(operator)
    tester.run(flow)
    emit(tester, (USERS, "a", "u"), (CITIES, "a", "c"), (USERS, "a", "v"), (CITIES, "a", None))
    emit(tester, (CITIES, "a", "d"), (USERS, "a", None), (CITIES, "a", None))
    assert written(tester) == [("a", each) for each in expected]


@pytest.mark.parametrize("operator", ["join", "left_join", "outer_join"])
def test_a_row_that_is_written_again_unchanged_makes_no_change(tester: Tester, operator: str) -> None:
    flow, _ = joined(operator)
    tester.run(flow)
    emit(tester, (USERS, "a", "u"), (CITIES, "a", "c"))
    before = written(tester)
    emit(tester, (USERS, "a", "u"), (CITIES, "a", "c"), (USERS, "b", None))
    assert written(tester) == before
    emit(tester, (USERS, "a", "v"))
    assert written(tester) == [*before, ("a", ["v", "c"])]


def test_at_least_once_an_unchanged_row_is_written_again_since_its_first_output_may_be_lost(
    tester: Tester,
) -> None:
    flow, _ = joined("join")
    tester.run(flow, guarantee=Guarantee.AT_LEAST_ONCE)
    emit(tester, (USERS, "a", "u"), (CITIES, "a", "c"), (USERS, "a", "u"))
    assert written(tester) == [("a", ["u", "c"])] * 2


def test_joined_rows_are_taken_away_from_their_group_and_added_to_another(tester: Tester) -> None:
    flow = Flow("f")
    left, right = tables(flow)
    both = left.join("both", right, lambda user, city: city, value=String())
    per_city = both.group_by("by-city", lambda city: city, key=String()).count("per-city")
    tester.run(flow)
    emit(tester, (USERS, "a", "u"), (USERS, "b", "v"), (CITIES, "a", "Rome"), (CITIES, "b", "Rome"))
    assert tester.table(per_city.table) == {"Rome": 2}
    emit(tester, (CITIES, "a", "Oslo"), (USERS, "b", None))
    assert tester.table(per_city.table) == {"Rome": 0, "Oslo": 1}


def test_tables_of_one_stream_are_joined(tester: Tester) -> None:
    flow = Flow("f")
    grouped = flow.stream(USERS).group_by_key()
    counts, longest = grouped.count("counts"), grouped.max("longest", len)
    both = counts.join("both", longest, lambda n, length: [n, length], value=JSON)
    kept = both.to_stream().to_table("kept", value=JSON)
    tester.run(flow)
    tester.emit_many(USERS, [("a", "xxx"), ("b", "x"), ("a", "x")])
    assert tester.table(kept.table) == {"a": [2, 3], "b": [1, 1]}


def test_a_row_that_a_step_changes_in_place_is_joined_as_it_was(tester: Tester) -> None:
    def add(row: list[str], text: str) -> list[str]:
        row.append(text)
        return row

    flow = Flow("f")
    lists = flow.stream(USERS).group_by_key().aggregate("lists", list, add, value=JSON)
    _, cities = tables(flow)
    per_length = (
        lists.join("both", cities, lambda texts, city: len(texts), value=Long())
        .group_by("by-length", lambda n: n, key=Long())
        .count("per-length")
    )
    tester.run(flow)
    emit(tester, (CITIES, "a", "c"), (USERS, "a", "1"), (USERS, "a", "2"))
    assert {length: n for length, n in tester.table(per_length.table).items() if n} == {2: 1}


def test_tables_of_other_groups_are_joined(tester: Tester) -> None:
    def keep(ctx: Any, value: str) -> None:
        ctx.set(value) if value else ctx.delete()

    names = [
        Group(name, Input(stream, keep), Persist(String())) for name, stream in (("u", USERS), ("c", CITIES))
    ]
    flow = Flow("f")
    left, right = (flow.table(Table(f"{n}-table", String(), String(), group=n)) for n in ("u", "c"))
    left.left_join("both", right, pair).to_stream().to(OUT)
    tester.run(*names, flow)
    emit(tester, (CITIES, "a", "c"), (USERS, "a", "u"), (CITIES, "a", None), (USERS, "a", None))
    assert written(tester) == [("a", ["u", "c"]), ("a", ["u", None]), ("a", None)]


def test_tables_with_different_numbers_of_partitions_are_refused_at_the_start(tester: Tester) -> None:
    flow, _ = joined("join")
    tester.create(USERS, partitions=2)
    tester.create(CITIES, partitions=3)
    with pytest.raises(TopicMismatch, match=r"it has 3, the input 2.*repartition"):
        tester.run(flow)


def test_tables_of_different_groups_are_refused() -> None:
    flow = Flow("f")
    left, _ = tables(flow)
    other = flow.stream(CITIES).key_by("by-city", str, key=String()).to_table("t")
    with pytest.raises(GraphError, match=r"join\(\).*'f', 'f-by-city'"):
        left.join("both", other, pair)


def test_windowed_tables_and_rows_without_a_codec_are_refused() -> None:
    flow = Flow("f")
    left, right = tables(flow)
    day = Tumbling(timedelta(days=1), grace=timedelta(0))
    counts = flow.stream(USERS).group_by_key().window(day).count("counts")
    with pytest.raises(GraphError, match="rows of windows"):
        counts.map_values(str, value=String()).join("a", counts, pair)
    with pytest.raises(GraphError, match="rows of the left side"):
        left.map_values(len).join("b", right, pair)


def test_the_rows_of_a_join_are_viewed_where_they_are_kept(tester: Tester) -> None:
    flow, both = joined("join")
    with pytest.raises(GraphError, match="not kept"):
        tester.view(both.table)
    kept = both.to_stream().to_table("kept", value=JSON)
    tester.run(flow)
    emit(tester, (USERS, "a", "u"), (CITIES, "a", "c"))
    assert tester.view(kept.table).get("a") == ["u", "c"]


def test_another_join_under_the_same_name_is_refused_at_the_start(tester: Tester) -> None:
    first, _ = joined("join")
    tester.run(first)
    emit(tester, (USERS, "a", "u"))
    tester.leave(first.group())
    del tester._instances[first.name]
    with pytest.raises(StateMeaningChanged, match="left_join of tables"):
        tester.run(joined("left_join")[0])


# ---- independence of batches and restarts --------------------------------------------------------------------------------------


def expected(events: list[tuple[Any, str, str | None]], operator: str) -> dict[str, Any]:
    sides: tuple[dict[str, str], dict[str, str]] = ({}, {})
    for stream, key, value in events:
        side = sides[stream is CITIES]
        if value is None:
            side.pop(key, None)
        else:
            side[key] = value
    left, right = sides
    keys = {
        "join": left.keys() & right.keys(),
        "left_join": left.keys(),
        "outer_join": left.keys() | right.keys(),
    }
    return {key: [left.get(key), right.get(key)] for key in keys[operator]}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(st.sampled_from([USERS, CITIES]), st.sampled_from("ab"), st.sampled_from([None, "x", "y"])),
        max_size=20,
    ),
    st.sampled_from(["join", "left_join", "outer_join"]),
    st.data(),
)
def test_rows_are_those_of_the_definition_however_the_input_is_divided_and_whatever_crashes(
    events: list[tuple[Any, str, str | None]], operator: str, data: st.DataObject
) -> None:
    bounds = [0, *sorted(data.draw(st.sets(st.integers(0, len(events))))), len(events)]
    restarts = data.draw(st.sets(st.integers(0, len(bounds))))
    failpoint = data.draw(st.sampled_from([None, "begun", "changelog-produced", "offsets-sent", "committed"]))
    flow, both = joined(operator)
    counts = both.group_by("all", str, key=String()).count("counts")
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
        last = {key: row for key, row in written(tester) if row is not None}
        last = {key: row for key, row in last.items() if dict(written(tester))[key] is not None}
        rows = expected(events, operator)
        assert last == rows
        there = {row: n for row, n in tester.table(counts.table).items() if n}
        assert there == {text: list(map(str, rows.values())).count(text) for text in map(str, rows.values())}


def test_a_row_that_cannot_be_decoded_stops_the_join_and_is_no_fault_of_the_record_at_work(
    tester: Tester,
) -> None:
    class Changed(String):  # as a codec that was changed and kept its name
        broken = False

        def decode_many(self, data: Any) -> Any:
            if Changed.broken:
                return Decoded([None] * len(data), {0: DeserializationError("it begins with another byte")})
            return super().decode_many(data)

        def __repr__(self) -> str:
            return "String()"

    flow = Flow("f", on_error=OnError.DEAD_LETTER)
    left = flow.stream(USERS).to_table("t0", value=Changed())
    right = flow.stream(CITIES).to_table("t1", value=String())
    left.join("both", right, pair, value=JSON).to_stream().to(OUT)
    tester.run(flow)
    emit(tester, (USERS, "a", "u"))
    Changed.broken = True
    with pytest.raises(Fatal, match=r"row of a joined table.*cannot be decoded.*another codec"):
        emit(tester, (CITIES, "a", "c"))
    assert not tester.dead_letters(flow.group())


def test_a_topic_that_is_joined_with_a_smaller_one_is_created_as_small(tester: Tester) -> None:
    flow = Flow("f")
    cities, users = flow.stream(CITIES, group="cities"), flow.stream(USERS)
    cities.key_by("by-user", lambda value: value, key=String(), beside=users).merge(users).to(
        Stream("all", String(), String())
    )
    tester.create(USERS, partitions=4)
    tester.create(CITIES, partitions=8)
    tester.run(flow)
    emit(tester, (CITIES, "c", "u"), (USERS, "u", "x"))
    assert [record.value for record in tester.records(Stream("all", String(), String()))] == ["u", "x"]


def test_a_table_with_other_partitions_is_brought_beside_a_stream_with_its_deletions(tester: Tester) -> None:
    """As the error says: the stream of the table's topic would skip them."""
    orders, users = Stream("orders", String(), String()), Table("user-table", String(), String())
    topic = Stream(users.name, String(), String())
    tester.create(orders, partitions=3)
    tester.create(topic, partitions=2)
    plain, flow = Flow("plain"), Flow("f")
    plain.stream(orders).left_join_table(plain.table(users), pair, value=JSON).to(OUT)
    advice = (
        r"table\(\.\.\., group=\.\.\.\)\.to_stream\(\).*repartition\(name, beside=\.\.\.\)\.to_table\(name\)"
    )
    with pytest.raises(TopicMismatch, match=advice):
        tester.run(plain)
    read = flow.stream(orders)
    moved = flow.table(users, group="users").to_stream().repartition("moved", beside=read).to_table("users")
    read.left_join_table(moved, pair, value=JSON).to(OUT)
    tester.run(flow)
    tester.emit(topic, "a", "ann")
    tester.emit(orders, "a", "1")
    tester.emit_raw(topic.name, b"a", None)
    tester.emit(orders, "a", "2")
    assert [record.value for record in tester.records(OUT)] == [["1", "ann"], ["2", None]]
