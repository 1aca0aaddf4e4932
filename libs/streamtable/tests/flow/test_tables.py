"""Tables of flows: aggregates, views of tables, and groups by another key, through the engine without a broker."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtable import (
    Collect,
    Count,
    Group,
    Input,
    Json,
    Long,
    Mean,
    OnError,
    Persist,
    Stream,
    String,
    Table,
    TopK,
    Typed,
)
from streamtable.errors import GraphError
from streamtable.flow import Flow, GroupedStream, GroupedTable, KeyedTable
from streamtable_testing.tester import Tester

if TYPE_CHECKING:
    from streamtable.base.ports import Codec, JsonValue

NUMBERS = Stream("numbers", String(), Long())
OUT = Stream("out", String(), Long())
TEXTS = Stream("texts", String(), String())
CITIES = Table("people-table", String(), String(), group="people")
EVENTS = [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", 5)]


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (lambda s: s.count("t"), {"a": 2, "b": 2, "c": 1}),
        (lambda s: s.sum("t", lambda v: v * 2), {"a": 8, "b": 14, "c": 8}),
        (lambda s: s.min("t", lambda v: -v), {"a": -3, "b": -5, "c": -4}),
        (lambda s: s.max("t", lambda v: -v), {"a": -1, "b": -2, "c": -4}),
        (lambda s: s.max("t", str, value=String()), {"a": "3", "b": "5", "c": "4"}),
        (lambda s: s.reduce("t", lambda row, v: row * 10 + v), {"a": 13, "b": 25, "c": 4}),
        (
            lambda s: s.aggregate("t", list, lambda row, v: [*row, v], value=Json()),
            {"a": [1, 3], "b": [2, 5], "c": [4]},
        ),
    ],
)
@pytest.mark.parametrize("at_once", [True, False], ids=["one batch", "one by one"])
def test_an_aggregate_makes_of_each_key_what_its_name_says(
    tester: Tester,
    keep: Callable[[GroupedStream[str, int]], KeyedTable[str, Any]],
    expected: Any,
    *,
    at_once: bool,
) -> None:
    flow = Flow("f")
    table = keep(flow.stream(NUMBERS).group_by_key())
    assert table.table.name == "f-t"
    tester.run(flow)
    for events in [EVENTS] if at_once else [[event] for event in EVENTS]:
        tester.emit_many(NUMBERS, events)
    assert tester.table(table.table) == expected
    assert tester.view(table.table).get("a") == expected["a"]


def test_a_count_is_what_the_built_in_aggregate_counts(tester: Tester) -> None:
    flow = Flow("f")
    table = flow.stream(NUMBERS).group_by_key().count("t")
    plain = Group("g", Input(NUMBERS, aggregate=Count()), Persist(Long()))
    tester.run(flow, plain)
    tester.emit_many(NUMBERS, EVENTS)
    assert tester.table(table.table) == tester.table(plain)


def test_a_stream_grouped_by_another_key_is_aggregated_in_a_group_of_its_own(tester: Tester) -> None:
    flow = Flow("f")
    table = flow.stream(NUMBERS).group_by("odd", lambda v: str(v % 2), key=String()).sum("sums", lambda v: v)
    tester.run(flow, partitions=3)
    tester.emit_many(NUMBERS, EVENTS)
    assert table.table.name == "f-odd-sums"
    assert tester.table(table.table) == {"0": 6, "1": 9}
    assert tester.view(table.table).get("1") == 9


def test_several_tables_of_a_stream_are_kept_by_one_group(tester: Tester) -> None:
    flow = Flow("f")
    grouped = flow.stream(NUMBERS).group_by_key()
    counts, sums = grouped.count("counts"), grouped.sum("sums", lambda v: v)
    assert len(flow.groups) == 1
    tester.run(flow)
    tester.emit_many(NUMBERS, EVENTS)
    assert tester.table(counts.table)["b"] == 2
    assert tester.table(sums.table)["b"] == 7


def test_the_changes_of_a_table_are_records_of_the_keys_that_have_changed(tester: Tester) -> None:
    flow = Flow("f")
    flow.stream(NUMBERS).group_by_key().count("t").to_stream().to(OUT)
    tester.run(flow)
    tester.emit_many(NUMBERS, EVENTS)
    tester.emit(NUMBERS, "c", 1)
    assert [(r.key, r.value) for r in tester.records(OUT)] == [("a", 2), ("c", 1), ("b", 2), ("c", 2)]


def test_a_table_of_latest_values_deletes_rows_at_none(tester: Tester) -> None:
    flow = Flow("f")
    latest = flow.stream(NUMBERS).map_values(lambda v: v if v < 4 else None).to_table("t", value=Long())
    latest.to_stream().to(OUT)
    tester.run(flow)
    tester.emit_many(NUMBERS, EVENTS)
    assert tester.table(latest.table) == {"a": 3}
    tester.emit(NUMBERS, "a", 9)
    assert tester.table(latest.table) == {}
    assert tester.records(OUT)[-1].value is None


def test_a_row_that_no_longer_fulfils_the_filter_is_deleted(tester: Tester) -> None:
    flow = Flow("f")
    latest = flow.stream(NUMBERS).to_table("t")
    latest.filter(lambda v: v > 2).map_values(lambda v: v * 10).to_stream().to(OUT)
    tester.run(flow)
    for key, value in [("a", 1), ("a", 3), ("a", 4), ("a", 2), ("a", 1), ("b", 5)]:
        tester.emit(NUMBERS, key, value)
    assert [(r.key, r.value) for r in tester.records(OUT)] == [("a", 30), ("a", 40), ("a", None), ("b", 50)]


def test_steps_of_tables_can_see_the_key(tester: Tester) -> None:
    flow = Flow("f")
    latest = flow.stream(NUMBERS).to_table("t")
    shown = latest.filter(lambda k, v: k != "a", with_key=True)
    shown.map_values(lambda k, v: ord(k) + v, with_key=True).to_stream().to(OUT)
    tester.run(flow)
    tester.emit_many(NUMBERS, EVENTS)
    assert [(r.key, r.value) for r in tester.records(OUT)] == [("c", 103), ("b", 103)]


# ---- groups of tables -----------------------------------------------------------------------------------------------------------


def by_parity(
    flow: Flow, keep: Callable[[GroupedTable[str, int]], KeyedTable[str, Any]]
) -> KeyedTable[str, Any]:
    """The latest number of each key, by whether it is odd."""
    latest = flow.stream(NUMBERS).to_table("latest")
    return keep(latest.group_by("parity", lambda v: "odd" if v % 2 else "even", key=String()))


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (lambda g: g.count("t"), {"odd": 1, "even": 2}),
        (lambda g: g.sum("t", lambda v: v * 10), {"odd": 30, "even": 120}),
        (
            lambda g: g.aggregate(
                "t", list, lambda row, v: [*row, v], lambda row, v: [x for x in row if x != v], value=Json()
            ),
            {"odd": [3], "even": [4, 8]},
        ),
    ],
)
def test_a_row_that_changes_leaves_its_group_and_comes_to_another(
    tester: Tester, keep: Callable[[GroupedTable[str, int]], KeyedTable[str, Any]], expected: Any
) -> None:
    flow = Flow("f")
    table = by_parity(flow, keep)
    tester.run(flow)
    tester.emit_many(NUMBERS, EVENTS)
    tester.emit(NUMBERS, "b", 8)
    assert tester.table(table.table) == expected


def test_rows_that_are_changed_in_place_are_taken_away_as_they_were(tester: Tester) -> None:
    def add(row: list[int], value: int) -> list[int]:
        row.append(value)
        return row

    flow = Flow("f")
    lists = flow.stream(NUMBERS).group_by_key().aggregate("lists", list[int], add, value=Ints())
    sizes = lists.group_by("size", lambda row: str(len(row)), key=String()).count("t")
    tester.run(flow)
    for event in EVENTS:
        tester.emit_many(NUMBERS, [event])
    assert tester.table(sizes.table) == {"1": 1, "2": 2}


class Ints(Json):
    """Lists of numbers as JSON."""

    def encode(self, value: Any) -> bytes:
        return super().encode(value)

    def decode(self, data: bytes) -> Any:
        return super().decode(data)


changes = st.lists(
    st.tuples(
        st.sampled_from("abcd"), st.integers(0, 5), st.sampled_from(["", "commit", "crash", "lost disk"])
    ),
    max_size=25,
)


@settings(max_examples=15, deadline=None)
@given(changes, st.sampled_from(["begun", "changelog-produced", "offsets-sent", "committed"]))
def test_groups_of_a_table_are_exact_after_crashes_and_lost_disks(
    events: list[tuple[str, int, str]], failpoint: str
) -> None:
    flow = Flow("f")
    counts = by_parity(flow, lambda g: g.count("counts"))
    sums = flow.group("parity")
    with Tester(partitions=2) as tester:
        tester.run(flow)
        for key, value, then in events:
            tester.emit(NUMBERS, key, value)
            if then in {"crash", "lost disk"}:
                for group in flow.groups:
                    tester.crash(group)
                    tester.start(group, disk=then == "crash")
            elif then == "commit":
                tester.crash(sums, at=failpoint)
                tester.emit(NUMBERS, key, value + 1)
                if any(instance.processor is None for instance in tester._of(sums)):
                    tester.start(sums, disk=False)
                else:
                    tester._of(sums)[0].kill_at = None
        latest = tester.table(Table("f-latest", String(), Long()))
        expected = {"odd": 0, "even": 0}
        for value in latest.values():
            expected["odd" if value % 2 else "even"] += 1
        found = tester.table(counts.table)
        assert {key: found.get(key, 0) for key in expected} == expected


ORACLES: dict[
    str, tuple[Callable[[GroupedTable[str, int]], KeyedTable[str, Any]], Callable[[list[int]], Any]]
] = {
    "min": (lambda g: g.min("t", lambda v: v // 2), lambda rows: min(rows) // 2),
    "max": (lambda g: g.max("t", str, value=String()), lambda rows: max(map(str, rows))),
    "top": (lambda g: g.fold("t", TopK(3, abs), value=Json()), lambda rows: sorted(rows, reverse=True)[:3]),
    "collect": (lambda g: g.collect("t", str, value=Json()), lambda rows: sorted(map(str, rows))),
    "mean": (lambda g: g.fold("t", Mean(int), value=Json()).map_values(lambda row: row["mean"]), fmean),
    "reduce": (
        lambda g: g.reduce("t", lambda row, v: row + v + 1, lambda row, v: row - v - 1 if row > v else None),
        lambda rows: sum(rows) + len(rows) - 1,
    ),
}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcdefg"),
            st.sampled_from([None, 0, 1, 2, 3, 4, 6, 9, 11, 15]),
            st.sampled_from(["", "", "", "one batch", "commit", "crash", "lost disk"]),
        ),
        min_size=5,
        max_size=40,
    ),
    st.sampled_from(sorted(ORACLES)),
)
def test_an_aggregate_of_a_grouped_table_is_that_of_its_rows_as_they_are_now(
    events: list[tuple[str, int | None, str]], name: str
) -> None:
    keep, oracle = ORACLES[name]
    flow = Flow("f")
    latest = flow.stream(NUMBERS).map_values(lambda v: v if v < 20 else None).to_table("latest", value=Long())
    table = keep(latest.group_by("parity", lambda v: "odd" if v % 2 else "even", key=String()))
    changed: dict[str, Any] = {}
    table.to_stream().peek(changed.__setitem__)
    with Tester(partitions=2) as tester:
        tester.run(flow)
        waiting: list[tuple[str, int]] = []
        for key, value, then in events:
            waiting.append((key, 99 if value is None else value))
            if then != "one batch":
                tester.emit_many(NUMBERS, waiting)
                waiting = []
            if then == "commit":
                tester.commit()
            elif then in {"crash", "lost disk"}:
                for group in flow.groups:
                    tester.crash(group)
                    tester.start(group, disk=then == "crash")
        tester.emit_many(NUMBERS, waiting)
        rows = list(tester.table(Table("f-latest", String(), Long())).values())
        odd, even = [v for v in rows if v % 2], [v for v in rows if not v % 2]
        expected = {key: oracle(found) for key, found in (("odd", odd), ("even", even)) if found}
    found = {key: row for key, row in changed.items() if row is not None and row != []}
    if name == "collect":
        found = {key: sorted(row) for key, row in found.items()}
    assert found == expected


def test_a_change_that_does_not_change_the_least_value_makes_no_change(tester: Tester) -> None:
    flow = Flow("f")
    by_parity(flow, lambda g: g.min("t", lambda v: v)).to_stream().to(OUT)
    tester.run(flow)
    for event in [("a", 5), ("b", 7), ("c", 7), ("b", 9), ("a", 11), ("a", 2), ("c", 4), ("b", 6)]:
        tester.emit_many(NUMBERS, [event])
    assert [(r.key, r.value) for r in tester.records(OUT)] == [
        ("odd", 5), ("odd", 7), ("even", 2), ("odd", 9), ("odd", None)
    ]  # fmt: skip


class Score(msgspec.Struct, frozen=True):
    points: int


class TeamScore(msgspec.Struct, frozen=True):
    points: int
    team: str = "none"


@pytest.mark.parametrize("after", [{"a": 1}, {"a": 9}, {"a": 0}])
def test_rows_of_a_top_are_taken_away_again_after_an_accepted_change_of_their_schema(
    tester: Tester, after: dict[str, int]
) -> None:
    scores = Stream[str, Any]("scores", String(), Json())

    def top_of(row: type[Any], rows: "Codec[Any]") -> tuple[Flow, KeyedTable[str, Any]]:
        flow = Flow("f")
        points = flow.stream(scores).map_values(lambda n: row(n) if n else None)
        latest = points.to_table("latest", value=Typed(row))
        top = TopK[Any](2, lambda score: score.points)
        return flow, latest.group_by("all", lambda _: "all", key=String()).fold("top", top, value=rows)

    first, _ = top_of(Score, Typed(list[Score]))
    tester.run(first)
    tester.emit_many(scores, [("a", 5), ("b", 5), ("c", 3)])
    for group in first.groups:
        tester.stop(group)
    second, table = top_of(TeamScore, Typed(list[TeamScore]))
    for group in second.groups:
        tester.start(group)
    tester.emit_many(scores, list(after.items()))
    points = sorted([after["a"], 5, 3], reverse=True)
    assert tester.table(table.table) == {"all": [TeamScore(n) for n in points[:2]]}


@pytest.mark.parametrize(("gone", "left"), [(1, [True, 1.0]), (True, [1, 1.0]), (1.0, [1, True])])
def test_collected_rows_that_are_equal_in_python_are_distinguished(gone: Any, left: list[Any]) -> None:
    assert list(map(repr, Collect[Any, Any](lambda event: event).subtract([1, True, 1.0], gone))) == list(
        map(repr, left)
    )


def test_a_value_that_has_no_order_is_refused_with_its_type(tester: Tester) -> None:
    flow = Flow("f", on_error=OnError.DEAD_LETTER)
    table = by_parity(flow, lambda g: g.min("t", lambda v: {"v": v}, value=Json()))
    tester.run(flow)
    tester.emit(NUMBERS, "a", 1)
    (letter,) = tester.dead_letters(flow.group("parity"))
    assert "a value of type dict cannot be kept in order" in str(letter)
    assert tester.table(table.table) == {}


@pytest.mark.parametrize("by", ["repartition", "key_by"])
def test_a_deletion_goes_through_a_topic_of_the_flow(tester: Tester, by: str) -> None:
    flow = Flow("f")
    odd = flow.stream(NUMBERS).to_table("latest").filter(lambda value: value % 2).to_stream()
    through = odd.repartition("through") if by == "repartition" else odd.key_by("through", str, key=String())
    table = through.to_table("odd")
    tester.run(flow)
    for event in [("a", 1), ("a", 2), ("b", 3)]:
        tester.emit_many(NUMBERS, [event])
    assert tester.table(table.table) == ({"b": 3} if by == "repartition" else {"1": 1, "3": 3})
    assert tester.dead_letters(flow.group("through")) == []


def test_a_table_of_another_group_is_read_with_its_changes(tester: Tester) -> None:
    people = Group("people", Input(TEXTS, lambda ctx, text: ctx.set(text)), Persist(String()))
    flow = Flow("f")
    by_city = flow.table(people.table).group_by("city", lambda city: city, key=String()).count("t")
    tester.run(people)
    tester.emit(TEXTS, "ann", "Rome")  # before the flow is there
    tester.run(flow)
    for person, city in [("bob", "Rome"), ("cid", "Oslo"), ("ann", "Oslo")]:
        tester.emit(TEXTS, person, city)
    assert tester.table(by_city.table) == {"Rome": 1, "Oslo": 2}
    with pytest.raises(GraphError, match="not kept"):
        flow.table(people.table).filter(bool).table  # noqa: B018 - reading it raises
    assert flow.table(people.table).table == people.table


# ---- refused programs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (
            lambda s: (s.group_by_key().count("x"), s.group_by_key().sum("x", int)),
            "two steps named 'x': count and sum",
        ),
        (lambda s: s.group_by_key().count("table"), "'table'"),
        (lambda s: s.map(lambda k, v: (k, v)).to_table("x"), "changes keys"),
        (lambda s: s.map_values(str).to_table("x"), "codec by value="),
        (lambda s: s.map_values(str).group_by_key().reduce("x", max), "codec by value="),
        (lambda s: s.to_table("x").map_values(str).group_by("y", str, key=String()), "codec by value="),
        (
            lambda s: (s.repartition("x").to_table("y"), s.to_table("x-y")),
            "the topic 'f-x-y' would belong to",
        ),
    ],
)
def test_a_table_that_cannot_be_is_refused_when_the_flow_is_built(
    build: Callable[[Any], Any], reason: str
) -> None:
    def compiled() -> None:
        flow = Flow("f")
        build(flow.stream(NUMBERS))
        assert flow.groups

    with pytest.raises(GraphError, match=reason):
        compiled()


# ---- independence of batches ------------------------------------------------------------------------------------------------------


events = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 6)), max_size=30)


def a_program() -> tuple[Flow, dict[str, KeyedTable[Any, Any]]]:
    """A flow with every kind of step; the order of records matters."""
    flow = Flow("f")
    numbers = flow.stream(NUMBERS)
    odd, even = numbers.split(lambda v: v % 2)
    merged = odd.map_values(lambda v: v * 10).merge(even.flat_map_values(lambda v: [v, v + 1]))
    digits: KeyedTable[str, JsonValue] = merged.group_by_key().aggregate(
        "digits", lambda: "", lambda row, v: f"{row},{v}", value=Json()
    )
    latest = numbers.to_table("latest")
    lengths = latest.filter(lambda v: v != 3).group_by("by-value", str, key=String()).count("lengths")
    sums = merged.map(lambda k, v: (str(v % 3), v), value=Long()).repartition(
        "thirds", key=String(), value=Long()
    )
    return flow, {"digits": digits, "lengths": lengths, "sums": sums.group_by_key().sum("sums", lambda v: v)}


def results(parts: list[list[tuple[str, int]]], restarts: set[int]) -> Mapping[str, Any]:
    flow, tables = a_program()
    with Tester(partitions=2) as tester:
        tester.run(flow)
        for number, part in enumerate(parts):
            tester.emit_many(NUMBERS, part)
            if number in restarts:
                for group in flow.groups:
                    tester.crash(group)
                    tester.start(group, disk=number % 2 == 0)
        return {name: dict(tester.table(table.table)) for name, table in tables.items()}


@settings(max_examples=15, deadline=None)
@given(events, st.data())
def test_the_same_input_gives_the_same_tables_however_it_is_divided_into_batches(
    records: list[tuple[str, int]], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(records)))))
    bounds = [0, *cuts, len(records)]
    parts = [records[begin:end] for begin, end in pairwise(bounds)]
    restarts = data.draw(st.sets(st.integers(0, len(parts))))
    whole, divided = results([records], set()), results(parts, restarts)
    # A group of rows that has become empty keeps its row, if it has ever been seen not to be empty.
    for each in (whole, divided):
        each["lengths"].update({key: 0 for key in map(str, range(7)) if key not in each["lengths"]})
    assert divided == whole
