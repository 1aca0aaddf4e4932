from datetime import timedelta
from functools import partial
from typing import Any, Literal

import msgspec
import pytest

from streamtable.base.topics import Stream, Table
from streamtable.codec.avro import Avro
from streamtable.codec.framing import Plain
from streamtable.codec.plain import Bytes, Long, String
from streamtable.codec.typed import Typed
from streamtable.errors import GraphError
from streamtable.flow.windows.keys import WindowedKey
from streamtable.graph.aggregate import Count
from streamtable.graph.event_time import EventTime
from streamtable.graph.group import (
    Changes,
    Group,
    Input,
    Join,
    Lookup,
    Loop,
    Output,
    Persist,
    Visit,
)
from streamtable.graph.once import Once
from streamtable.graph.timer import Timer

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


def test_a_group_may_write_its_own_topic_of_visits_to_start_one_and_may_not_read_it_as_a_stream() -> None:
    visits, edges = Stream("g-visits", String(), Bytes()), (Persist(Long()), Visit("clear", handle))
    assert Group("g", Input(CLICKS, handle), Output(visits), *edges).visits_topic == "g-visits"
    with pytest.raises(GraphError, match="that topic is its own"):
        Group("g", Input(visits, handle), *edges)


@pytest.mark.parametrize(
    ("handlers", "count"),
    [({}, 0), ({"handler": handle, "batch": handle}, 2), ({"batch": handle, "aggregate": Count()}, 2)],
)
def test_an_input_has_exactly_one_kind_of_handler(handlers: Any, count: int) -> None:
    with pytest.raises(GraphError, match=f"'clicks' has {count} handlers"):
        Input(CLICKS, **handlers)


@pytest.mark.parametrize("taken", [{"time": int}, {"once": Once(str, timedelta(hours=1))}])
def test_an_input_with_tombstones_takes_nothing_from_its_events(taken: Any) -> None:
    (name,) = taken
    with pytest.raises(GraphError, match=f"tombstones=True with {name}="):
        Input(CLICKS, handle, tombstones=True, **taken)


def refused(*edges: Any) -> str:
    with pytest.raises(GraphError) as caught:
        Group("g", *edges)
    return str(caught.value)


def test_a_group_without_an_input_is_refused() -> None:
    assert "reads nothing" in refused(Persist(Long()))


def test_what_is_no_edge_is_refused_by_name() -> None:
    stream: Any = Stream("s", String(), String())
    assert "Stream(name='s'" in refused(stream)


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


class Item(msgspec.Struct, frozen=True):
    item: str


class Product(msgspec.Struct, frozen=True):
    product: str


def avro_key(name: str) -> Any:
    return {"type": "record", "name": name, "fields": [{"name": "id", "type": "int"}]}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Typed(Item), Typed(Product)),
        (Avro(avro_key("orders.Key")), Avro(avro_key("customers.Key"))),
        (Avro("string"), Avro("string", Plain())),
        (WindowedKey(String(), 60_000), WindowedKey(String(), 300_000)),
    ],
)
def test_codecs_of_one_class_whose_equal_keys_have_other_bytes_share_no_rows(one: Any, other: Any) -> None:
    clicks, users = Stream("clicks", one, String()), Table("users", other, String())
    assert "keyed differently: 'clicks' by" in refused(Input(clicks, handle), Join(users))
    likes = Stream("likes", other, String())
    assert "keyed differently" in refused(Input(clicks, handle), Input(likes, handle), Persist(Long()))
    assert Group("g", Input(clicks, handle), Input(likes, handle)).inputs, "no rows are found by these keys"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Typed(Item), Typed(msgspec.defstruct("Named", [("item", str)], frozen=True))),
        (Typed(int), Typed(Literal[1, 2])),
        (Avro(avro_key("orders.Key"), Plain()), Avro(avro_key("customers.Key"), Plain())),
        (Avro(avro_key("a.Key")), Avro({**avro_key("a.Key"), "doc": "the same bytes"})),
    ],
)
def test_codecs_whose_equal_keys_have_the_same_bytes_may_differ_otherwise(one: Any, other: Any) -> None:
    clicks, users = Stream("clicks", one, String()), Table("users", other, String())
    assert Group("g", Input(clicks, handle), Join(users), Persist(Long())).joins


def test_inputs_and_joins_that_are_partitioned_differently_are_refused_with_both_sides() -> None:
    goka = Stream("goka", String(), String(), partitioner="fnv1a")
    message = refused(Input(CLICKS, handle), Input(goka, handle))
    assert "'clicks' by murmur2" in message
    assert "'goka' by fnv1a" in message
    message = refused(Input(goka, handle), Join(Table("users", String(), String())))
    assert "'goka' by fnv1a, 'users' by murmur2" in message


def test_a_groups_table_is_partitioned_as_its_inputs_are() -> None:
    goka = Stream("goka", String(), String(), partitioner="fnv1a")
    changed = Table("goka-table", String(), String(), partitioner="fnv1a")
    assert Group("g", Input(goka, handle), Persist(Long())).table.partitioner == "fnv1a"
    assert Group("g", Changes(changed, handle), Persist(Long())).table.partitioner == "fnv1a"
    assert Group("g", Input(CLICKS, handle), Persist(Long())).table.partitioner == "murmur2"


def test_an_aggregate_without_a_table_is_refused() -> None:
    assert "add Persist" in refused(Input(CLICKS, aggregate=Count()))


def test_a_group_without_a_table_says_so_when_asked_for_it() -> None:
    with pytest.raises(GraphError, match="keeps no table"):
        _ = Group("g", Input(CLICKS, handle)).table


@pytest.mark.parametrize("name", ["", "a b", "g" * 237])
def test_a_name_of_which_no_topics_can_be_made_is_refused(name: str) -> None:
    with pytest.raises(GraphError, match="topic name"):
        Group(name, Input(CLICKS, handle))


USERS = Table("users", String(), Long())
LOOP = Stream("g-loop", String(), String())


def changed(ctx: Any, change: Any) -> None:
    """Nothing."""


def test_edges_name_all_topics_that_move_together() -> None:
    group: Group[str, int] = Group(
        "g",
        Input(CLICKS, handle),
        Loop(LOOP, handle),
        Join(Table("cities", String(), Long())),
        Changes(USERS, changed),
        Lookup(Table("all", Long(), Long())),
        Persist(Long()),
        Visit("v", handle),
    )
    assert group.input_topics == ("clicks", "g-loop", "cities", "users", "g-retry", "g-visits")
    assert [edge.stream.name for edge in group.inputs] == ["clicks", "g-loop"]
    assert group.table.group == "g"


def test_changes_alone_make_a_group_keyed_as_their_table_is() -> None:
    group: Group[str, int] = Group("g", Changes(USERS, changed), Persist(Long()))
    assert group.key is USERS.key
    assert group.input_topics == ("users", "g-retry")


def test_a_join_and_changes_of_one_table_are_one_join_with_its_wait() -> None:
    group: Group[str, int] = Group("g", Changes(USERS, changed), Join(USERS, wait=2))
    assert [(join.table.name, join.wait) for join in group.joins] == [("users", 2)]


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        ([Loop(LOOP, handle), Loop(LOOP, handle)], ["2 Loop edges", "'g'"]),
        ([Loop(CLICKS, handle)], ["'clicks'", "'g-loop'"]),
        ([Input(CLICKS, handle), Join(USERS), Join(USERS)], ["two Joins of table 'users'"]),
        ([Changes(USERS, changed), Changes(USERS, changed)], ["two Changes of table 'users'"]),
        ([Input(CLICKS, handle), Lookup(USERS), Lookup(USERS)], ["two Lookups of table 'users'"]),
        (
            [Input(CLICKS, handle), Persist(Long()), Visit("v", handle), Visit("v", handle)],
            ["two Visits named 'v'"],
        ),
        ([Input(CLICKS, handle), Visit("v", handle)], ["'v'", "no rows to visit", "add Persist"]),
        ([Join(USERS)], ["reads nothing"]),
        ([Persist(Long()), Visit("v", handle)], ["reads nothing"]),
        ([Input(CLICKS, handle), Join(Table("g-table", String(), Long()))], ["'g-table'", "its own", "loop"]),
        ([Input(CLICKS, handle), Lookup(Table("g-visits", String(), Long()))], ["'g-visits'", "its own"]),
        (
            [Input(CLICKS, handle), Join(Table("clicks", String(), Long()))],
            ["'clicks'", "stream and as a table"],
        ),
        (
            [Input(CLICKS, handle), Output(Stream("users", String(), Long())), Join(USERS)],
            ["'users'", "stream and as a table"],
        ),
        (
            [Input(CLICKS, handle), Join(Table("raw", Bytes(), Long()))],
            ["'clicks' by String()", "'raw' by Bytes()"],
        ),
        (
            [Input(CLICKS, handle), Loop(Stream("g-loop", Bytes(), Long()), handle)],
            ["'clicks' by String()", "'g-loop' by Bytes()"],
        ),
        (
            [Changes(USERS, changed), Changes(Table("raw", Bytes(), Long()), changed)],
            ["'users' by String()", "'raw' by Bytes()"],
        ),
        ([Input(Stream("g-visits", String(), String()), handle)], ["'g-visits'", "its own"]),
    ],
)
def test_edges_that_contradict_each_other_are_refused_with_both_sides(edges: Any, words: list[str]) -> None:
    message = refused(*edges)
    assert [word for word in words if word not in message] == []


@pytest.mark.parametrize("wait", [-0.1, 60.1, float("nan"), float("inf")])
def test_a_join_waits_for_at_most_a_minute(wait: float) -> None:
    with pytest.raises(GraphError, match=r"'users' waits .* s: give 0 to 60"):
        Join(USERS, wait=wait)


@pytest.mark.parametrize("name", ["", "a b", "x" * 250])
def test_a_visit_has_a_name_that_a_command_can_say(name: str) -> None:
    with pytest.raises(GraphError, match="visit"):
        Visit(name, handle)


@pytest.mark.parametrize("wrong", ["dead-letter", "stop", None, True])
def test_a_wrong_on_error_is_refused_when_the_graph_is_built(wrong: Any) -> None:
    def handle(*_: Any) -> None:
        """Never called."""

    stream, table = Stream("events", String(), String()), Table("users", String(), String())
    for build in (
        lambda: Input(stream, handle, on_error=wrong),
        lambda: Loop(Stream("g-loop", String(), String()), handle, on_error=wrong),
        lambda: Changes(table, handle, on_error=wrong),
        lambda: Visit("v", handle, on_error=wrong),
    ):
        with pytest.raises(GraphError, match=r"give one of OnError\.STOP, OnError\.DEAD_LETTER"):
            build()


async def waits(*_: Any) -> None: ...


def yields(*_: Any) -> Any:
    yield


class Waits:
    async def __call__(self, ctx: Any, event: Any) -> None: ...


@pytest.mark.parametrize("function", [waits, yields, Waits(), partial(waits, 1)])
@pytest.mark.parametrize(
    "edge",
    [
        lambda each: Input(CLICKS, each),
        lambda each: Input(CLICKS, batch=each),
        lambda each: Loop(CLICKS, each),
        lambda each: Changes(Table("t", String(), Long()), each),
        lambda each: Visit("v", each),
        lambda each: Timer("t", each, Long()),
    ],
)
def test_a_handler_that_nothing_would_run_is_refused(edge: Any, function: Any) -> None:
    with pytest.raises(GraphError, match=r"is async or has a yield.*: give a plain function"):
        edge(function)


GROUP: Any = Group("g", Input(CLICKS, handle), Persist(Long()))


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: Input("clicks", handle), r"Input takes a Stream, not a value of type str"),  # type: ignore[arg-type]
        (lambda: Input(GROUP.table, handle), r"Input takes a Stream, not a value of type Table: .*Changes"),
        (lambda: Input(CLICKS, aggregate=Count), r"takes an Aggregate, not the class Count: write Count\(\)"),  # type: ignore[arg-type]
        (lambda: Input(CLICKS, handle, time="at"), r"time= of input 'clicks' is 'at': give a function"),  # type: ignore[arg-type]
        (lambda: Input(CLICKS, "handle"), r"the handler of input 'clicks' is 'handle': give a function"),  # type: ignore[arg-type]
        (lambda: Once("id", within=3600), r"within= of Once takes a timedelta, not a value of type int"),  # type: ignore[arg-type]
        (lambda: EventTime(idle_after=30), r"idle_after= of EventTime takes a timedelta, not a value of"),  # type: ignore[arg-type]
    ],
)
def test_an_argument_of_another_type_is_refused_with_the_type_to_give(build: Any, reason: str) -> None:
    with pytest.raises(GraphError, match=reason):
        build()
