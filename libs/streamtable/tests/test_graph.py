from typing import Any

import pytest

from streamtable.aggregate import Count
from streamtable.codec.plain import Bytes, Long, String
from streamtable.errors import GraphError
from streamtable.graph import Group, Input, Output, Persist
from streamtable.topics import Stream

CLICKS = Stream("clicks", String(), String())
LIKES = Stream("likes", String(), String())


def handle(ctx: Any, event: Any) -> None:
    ctx.set(1)


def test_topics_derive_from_the_groups_name() -> None:
    group: Group[str, int] = Group("g", Input(CLICKS, handle), Input(LIKES, handle), Persist(Long()))
    assert group.table.name == "g-table"
    assert group.dead_letters == "g-dead-letters"
    assert group.retry == "g-retry"
    assert group.input_topics == ("clicks", "likes", "g-retry")
    assert isinstance(group.table.key, String)


@pytest.mark.parametrize(
    ("handlers", "count"),
    [({}, 0), ({"handler": handle, "batch": handle}, 2), ({"batch": handle, "aggregate": Count()}, 2)],
)
def test_an_input_has_exactly_one_kind_of_handler(handlers: Any, count: int) -> None:
    with pytest.raises(GraphError, match=f"'clicks' has {count} handlers"):
        Input(CLICKS, **handlers)


def refused(*edges: Any) -> str:
    with pytest.raises(GraphError) as caught:
        Group("g", *edges)
    return str(caught.value)


def test_a_group_without_an_input_is_refused() -> None:
    assert "reads nothing" in refused(Persist(Long()))


def test_a_second_table_is_refused() -> None:
    assert "2 Persist edges" in refused(Input(CLICKS, handle), Persist(Long()), Persist(Long()))


def test_a_stream_that_is_read_twice_is_refused_by_name() -> None:
    assert "two Inputs for stream 'clicks'" in refused(Input(CLICKS, handle), Input(CLICKS, handle))


@pytest.mark.parametrize("own", ["g-table", "g-retry", "g-dead-letters"])
def test_a_groups_own_topics_are_neither_input_nor_output(own: str) -> None:
    stream = Stream(own, String(), String())
    assert repr(own) in refused(Input(stream, handle))
    assert repr(own) in refused(Input(CLICKS, handle), Output(stream))


def test_inputs_that_are_keyed_differently_are_refused_with_both_sides() -> None:
    message = refused(Input(CLICKS, handle), Input(Stream("raw", Bytes(), String()), handle))
    assert "'clicks' by String()" in message
    assert "'raw' by Bytes()" in message


def test_an_aggregate_without_a_table_is_refused() -> None:
    assert "add Persist" in refused(Input(CLICKS, aggregate=Count()))


def test_a_group_without_a_table_says_so_when_asked_for_it() -> None:
    with pytest.raises(GraphError, match="keeps no table"):
        _ = Group("g", Input(CLICKS, handle)).table


@pytest.mark.parametrize("name", ["", "a b", "g" * 237])
def test_a_name_of_which_no_topics_can_be_made_is_refused(name: str) -> None:
    with pytest.raises(GraphError, match="topic name"):
        Group(name, Input(CLICKS, handle))
