"""Rows of Avro whose schema changes between two starts: refused at the start, unless all rows can be read."""

from collections.abc import Iterator
from dataclasses import dataclass
from json import dumps
from typing import Any

import pytest

from streamtable import Avro, Context, Group, Input, Long, Persist, Plain, State, Stream, String, Table
from streamtable.errors import StateMeaningChanged
from streamtable.flow import Flow
from streamtable_testing import Tester

NUMBERS = Stream("numbers", String(), Long())
OUT = Stream("out", String(), Long())
CENTS = {"name": "cents", "type": ["null", "long"]}
BEFORE = dumps({"type": "record", "name": "Total", "fields": [CENTS]})
AFTER = dumps(
    {"type": "record", "name": "Total", "fields": [CENTS, {"name": "n", "type": "int", "default": 7}]}
)
NO_DEFAULT = dumps({"type": "record", "name": "Total", "fields": [CENTS, {"name": "shop", "type": "string"}]})
NEVER_NULL = dumps({"type": "record", "name": "Total", "fields": [{"name": "cents", "type": "long"}]})
IN_TEXT = dumps({"type": "record", "name": "Total", "fields": [{"name": "cents", "type": "string"}]})


@dataclass(frozen=True)
class Released:
    """A schema with its released versions, as generated constants have them."""

    schema: str
    history: tuple[str, ...] = ()
    row: type[Any] = dict


@pytest.fixture
def tester() -> Iterator[Tester]:
    with Tester() as tester:
        yield tester


def totals(codec: Avro[Any], *, own: bool) -> Group[str, Any]:
    """A group that keeps totals in its own table, or in a state."""
    state = State("totals", key=String(), value=codec)

    def add(ctx: Context[str, Any], number: int) -> None:
        row = (ctx.value if own else ctx.table(state).get(ctx.key)) or {"cents": 0}
        row = {**row, "cents": row["cents"] + number}
        if own:
            ctx.set(row)
        else:
            ctx.table(state).put(ctx.key, row)

    return Group("g", Input(NUMBERS, add), Persist(codec) if own else state)


def rows(tester: Tester, group: Group[str, Any]) -> Any:
    return tester.table(group) if group.persist else tester.table(group, group.states[0])


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (Avro(NO_DEFAULT), r"Total\.shop: not in the writer's schema, and has no default"),
        (Avro(NEVER_NULL), r"Total\.cents: null cannot be read as long"),
        (Avro(IN_TEXT), r"Total\.cents: null cannot be read as string"),
        (Avro(AFTER), r"the schema \w{16} was written, and is none of those that are read"),
    ],
)
def test_a_schema_that_cannot_read_the_rows_of_a_state_stops_at_the_start(
    tester: Tester, edit: Avro[Any], reason: str
) -> None:
    before = totals(Avro(BEFORE), own=False)
    tester.run(before)
    tester.emit(NUMBERS, "a", 5)
    tester.stop(before)
    with pytest.raises(StateMeaningChanged, match=f"do not fit its type any more: {reason}") as refused:
        tester.start(totals(edit, own=False))
    assert (refused.value.state, refused.value.topic) == ("totals", "g-totals")
    tester.start(before)  # back again: nothing was changed
    tester.emit(NUMBERS, "a", 5)
    assert rows(tester, before) == {"a": {"cents": 10}}


@pytest.mark.parametrize("own", [True, False])
def test_rows_of_a_released_version_are_read(tester: Tester, *, own: bool) -> None:
    before, after = totals(Avro(BEFORE), own=own), totals(Avro(Released(AFTER, (BEFORE,))), own=own)
    for group in (before, after, after):
        tester.run(group)
        tester.emit(NUMBERS, "a", 5)
        tester.leave(group)
        del tester._instances[group.name]
    tester.run(after)
    assert rows(tester, after) == {"a": {"cents": 15, "n": 7}}


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("edit", [Avro(AFTER, Plain()), Avro(Released(AFTER, (BEFORE,)), Plain())])
def test_rows_without_a_prefix_are_read_with_the_schema_that_wrote_them_only(
    tester: Tester, edit: Avro[Any], *, own: bool
) -> None:
    before = totals(Avro(BEFORE, Plain()), own=own)
    tester.run(before)
    tester.emit(NUMBERS, "a", 5)
    tester.stop(before)
    with pytest.raises(StateMeaningChanged, match="none of those that are read"):
        tester.start(totals(edit, own=own))


def test_a_key_of_another_version_would_be_another_key_and_is_refused(tester: Tester) -> None:
    def group(key: Avro[Any]) -> Group[str, int]:
        state = State("totals", key=key, value=Long())

        def keep(ctx: Context[str, int], number: int) -> None:
            ctx.table(state).put({"cents": number}, number)

        return Group("g", Input(NUMBERS, keep), state)

    before = group(Avro(BEFORE))
    tester.run(before)
    tester.emit(NUMBERS, "a", 5)
    tester.stop(before)
    with pytest.raises(StateMeaningChanged, match="none of those that are read"):
        tester.start(group(Avro(Released(AFTER, (BEFORE,)))))


def joined(codec: Avro[Any]) -> Flow:
    """A flow whose join keeps the rows of both sides in a table of its own."""
    flow = Flow("f")
    left, right = (flow.table(Table(name, String(), codec)) for name in ("left", "right"))
    left.join("both", right, lambda one, two: one["cents"] + two["cents"]).to_stream().to(OUT)
    return flow


def test_the_schemas_of_rows_that_a_join_keeps_are_compared_too(tester: Tester) -> None:
    before, after, wrong = map(
        joined, (Avro(BEFORE), Avro(Released(AFTER, (BEFORE,))), Avro(Released(NO_DEFAULT)))
    )
    tester.run(before)
    tester.emit(Stream("left", String(), Avro(BEFORE)), "a", {"cents": 5})
    tester.leave(before.group())
    del tester._instances[before.name]
    tester.run(after)
    tester.emit(Stream("right", String(), Avro(AFTER)), "a", {"cents": 6, "n": 1})
    assert [each.value for each in tester.records(OUT)] == [11]
    tester.leave(after.group())
    del tester._instances[after.name]
    with pytest.raises(StateMeaningChanged, match=r"Total\.shop: not in the writer's schema"):
        tester.run(wrong)


def test_another_schema_is_refused_for_the_rows_of_a_group_s_own_table(tester: Tester) -> None:
    before = totals(Avro(BEFORE), own=True)
    tester.run(before)
    tester.emit(NUMBERS, "a", 5)
    tester.stop(before)
    with pytest.raises(StateMeaningChanged, match=r"the schema \w{16} was written, and is none") as refused:
        tester.start(totals(Avro(AFTER), own=True))
    assert (refused.value.state, refused.value.topic) == ("table", "g-table")
    tester.start(before)
    tester.emit(NUMBERS, "a", 5)
    assert rows(tester, before) == {"a": {"cents": 10}}
