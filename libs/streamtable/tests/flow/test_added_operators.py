"""An operator that is added behind a table that has rows is refused; one that is added behind a stream begins from now on."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from streamtable import Json, Long, Stream, String, Table
from streamtable.errors import StateLost
from streamtable.flow import Flow, KeyedStream, KeyedTable
from streamtable_testing.tester import Tester

LEFT, RIGHT, OUT = (
    Stream("l", String(), Json()),
    Stream("r", String(), Json()),
    Stream("out", String(), Json()),
)
COUNTS = Table("f-by-n", String(), Long())

Add = Callable[[KeyedStream[str, Any], KeyedTable[str, Any], KeyedTable[str, Any]], object]


def program(*added: Add) -> Flow:
    flow = Flow("f")
    left = flow.stream(LEFT).map_values(lambda each: each or None, value=Json())
    rows, others = left.to_table("rows"), flow.stream(RIGHT).to_table("others")
    for add in added:
        add(left, rows, others)
    return flow


def upgrade(tester: Tester, before: Flow, after: Flow) -> None:
    for group in before.groups:
        tester.stop(group)
    for group in after.groups:
        if group.name in tester._instances:
            tester.start(group)
        else:
            tester.run(group)


def fill(tester: Tester) -> None:
    for number in range(4):
        tester.emit(LEFT, f"k{number}", {"c": "red", "q": 10})
        tester.emit(RIGHT, f"k{number}", {"q": 1})


def pair(left: Any, right: Any) -> Any:
    return [left, right]


def grouped(table: KeyedTable[str, Any]) -> Any:
    return table.group_by("by", lambda row: row["c"], key=String())


BEHIND_TABLES: dict[str, Add] = {
    "count": lambda _, rows, __: grouped(rows).count("n"),
    "count behind a filter": lambda _, rows, __: grouped(rows.filter(bool)).count("n"),
    "join": lambda _, rows, others: rows.join("j", others, pair).to_stream().to(OUT),
    "left join": lambda _, rows, others: rows.left_join("j", others, pair),
    "join by a foreign key": lambda _, rows, others: rows.join("j", others, pair, on=lambda row: row["c"]),
    "join as of": lambda left, _, others: left.join_as_of(
        "j", others, pair, history=timedelta(days=1), grace=timedelta(0)
    ),
}


@pytest.mark.parametrize("add", BEHIND_TABLES.values(), ids=list(BEHIND_TABLES))
@pytest.mark.parametrize("disk", [True, False])
def test_an_operator_that_is_added_behind_a_table_with_rows_is_refused_with_what_to_do(
    tester: Tester,
    add: Add,
    disk: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    before, after = program(), program(add)
    tester.run(before)
    fill(tester)
    tester.stop(before.group())
    with pytest.raises(StateLost, match=r"has rows already.*flow\.table.*group reset f --to earliest"):
        tester.start(after.group(), disk=disk)
    tester.start(before.group(), disk=disk)  # nothing was changed
    tester.emit(LEFT, "k9", {"c": "red"})
    assert len(tester.table(Table("f-rows", String(), Json()))) == 5


@pytest.mark.parametrize("add", BEHIND_TABLES.values(), ids=list(BEHIND_TABLES))
def test_an_operator_that_is_added_behind_a_table_without_rows_is_right(tester: Tester, add: Add) -> None:
    before, after = program(), program(add)
    tester.run(before)
    upgrade(tester, before, after)
    fill(tester)
    upgrade(tester, after, program(add))


def test_an_aggregate_that_is_added_to_rows_that_are_grouped_already_is_refused(tester: Tester) -> None:
    one = program(lambda _, rows, __: grouped(rows).count("n"))

    def both(_: object, rows: KeyedTable[str, Any], __: object) -> None:
        again = grouped(rows)
        again.count("n")
        again.sum("sums", lambda row: row["q"])

    tester.run(one)
    fill(tester)
    with pytest.raises(StateLost, match=r"'f-by-sums'.*'f-by', which has rows already"):
        upgrade(tester, one, program(both))


@pytest.mark.parametrize("joined", [False, True], ids=["followed", "only joined"])
def test_an_operator_behind_another_programs_table_is_refused_when_it_is_added_to_a_group_without_tables(
    tester: Tester, *, joined: bool
) -> None:
    def reader(*, more: bool) -> Flow:
        flow = Flow("g")
        rows = flow.table(Table("f-rows", String(), Json()))
        read = flow.stream(LEFT).left_join_table(rows, pair, value=Json()) if joined else rows.to_stream()
        read.to(OUT)
        if more:
            grouped(rows).count("n")
        return flow

    tester.run(program(), reader(more=False))
    fill(tester)
    with pytest.raises(StateLost, match="follows the changes of 'f-rows'"):
        upgrade(tester, reader(more=False), reader(more=True))


def test_a_group_of_its_own_reads_the_rows_that_are_there_first(tester: Tester) -> None:
    """The way out that the error names."""
    before = program()
    tester.run(before)
    fill(tester)
    after = program()
    grouped(_flow_table(after)).count("n")
    upgrade(tester, before, after)
    tester.emit(LEFT, "k0", {})
    tester.emit(LEFT, "k1", {"c": "blue"})
    assert tester.table(COUNTS) == {"red": 2, "blue": 1}


def _flow_table(flow: Flow) -> KeyedTable[str, Any]:
    return flow.table(Table("f-rows", String(), Json()), group="later")


BEHIND_STREAMS: dict[str, tuple[Add, str, dict[str, int]]] = {
    "count": (lambda left, _, __: left.group_by_key().count("n"), "f-n", {"k0": 1}),
    "count behind a repartition": (
        lambda left, _, __: left.group_by("by", lambda each: each["c"], key=String()).count("n"),
        "f-by-n",
        {"red": 1},
    ),
    "count of changes": (lambda _, rows, __: rows.to_stream().group_by_key().count("n"), "f-n", {"k0": 1}),
}


@pytest.mark.parametrize("name", BEHIND_STREAMS)
def test_an_operator_that_is_added_behind_a_stream_begins_with_the_records_from_now_on(
    tester: Tester, name: str
) -> None:
    add, topic, right = BEHIND_STREAMS[name]
    before, after = program(), program(add)
    tester.run(before)
    fill(tester)
    upgrade(tester, before, after)
    tester.emit(LEFT, "k0", {"c": "red"})
    assert tester.table(Table(topic, String(), Long())) == right
