"""Keys of every kind: records and arrays, equal keys with different bytes, and ranges in the order of the keys."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from streamtable import (
    Avro,
    Bytes,
    Context,
    Group,
    Input,
    Json,
    Long,
    Persist,
    State,
    Stream,
    String,
    avro_branch,
)
from streamtable.base.ports import TopicInfo
from streamtable.base.types import RecordBatch
from streamtable.engine.records.placement import Placement
from streamtable.errors import GraphError
from streamtable_testing import Tester
from streamtable_testing.topic import InMemoryMessage

SHOP_SKU = Avro(
    {
        "type": "record",
        "name": "K",
        "fields": [
            {"name": "shop", "type": "int"},
            {"name": "sku", "type": {"type": "array", "items": "string"}},
        ],
    }
)
KEY = {"shop": 1, "sku": ["x"]}
NUMBERS = State("numbers", key=Long(), value=Json())


def counting(key: Any) -> tuple[Stream[Any, Any], Group[Any, int]]:
    stream: Stream[Any, Any] = Stream("sales", key, Json())

    def count(ctx: Context[Any, int], _: Any) -> None:
        ctx.set((ctx.value or 0) + 1)

    return stream, Group("g", Input(stream, count), Persist(Long()))


@pytest.mark.parametrize(
    ("codec", "key"),
    [
        (SHOP_SKU, KEY),
        (Avro({"type": "map", "values": "int"}), {"a": 1}),
        (Json(), KEY),
        (Json(), ["x", {"y": 1}]),
        (Json(), "text"),
    ],
)
def test_rows_are_found_by_keys_that_are_records_maps_and_arrays(
    tester: Tester, codec: Any, key: Any
) -> None:
    stream, group = counting(codec)
    tester.run(group)
    tester.emit(stream, key, 1)
    view = tester.view(group.table)
    assert view.get(key) == 1
    assert list(view.get_many([key]).items()) == [(key, 1)]
    assert [(found, answer.value) for found, answer in view.answers([key]).items()] == [(key, 1)]
    assert list(tester.table(group).items()) == [(key, 1)]
    assert view.range() == [(key, 1)]
    (found,) = view.get_many([key])
    assert view.get_many([found])[found] == 1


@pytest.mark.parametrize("codec", [Json(), Avro({"type": "map", "values": {"type": "map", "values": "int"}})])
def test_keys_with_names_in_another_order_are_one_key(tester: Tester, codec: Any) -> None:
    stream, group = counting(codec)
    tester.run(group)
    tester.emit(stream, {"shop": {}, "sku": {"b": 1, "a": 2}}, 1)
    tester.emit(stream, {"sku": {"a": 2, "b": 1}, "shop": {}}, 1)
    assert list(tester.table(group).values()) == [2]


def test_json_keys_of_other_programs_with_unsorted_names_are_warned_of_once(tester: Tester) -> None:
    stream, group = counting(Json())
    with capture_logs() as logs:
        tester.run(group, partitions=1)
        for _ in range(3):
            tester.emit_raw(stream.name, b'{"sku":"x","shop":1}', b"1")
    warnings = [line for line in logs if line["event"] == "equal keys have different bytes"]
    assert [line["place"] for line in warnings] == ["sales[0]@0"]
    assert "the names of an object are not sorted" in warnings[0]["reason"]


@pytest.mark.parametrize("odd", [b'{"sku":"x","shop":1}', b' {"shop":1,"sku":"x"}', b"[1, 2]"])
def test_a_json_key_of_another_form_is_noticed_wherever_it_is_in_a_batch(odd: bytes) -> None:
    stream, group = counting(Json())
    keys = [b'"text"', b"17", b'{"shop":1,"sku":"x"}', odd]
    with capture_logs() as logs:
        messages = [InMemoryMessage(offset, key, b"1", [], 0, None) for offset, key in enumerate(keys)]
        topics = {stream.name: TopicInfo(stream.name, 1, "id", False, 0, 1_000_000)}
        Placement(group, 0, topics).look(RecordBatch(stream.name, 0, messages))
    warnings = [line for line in logs if line["event"] == "equal keys have different bytes"]
    assert [line["place"] for line in warnings] == ["sales[0]@3"]


def test_avro_keys_of_two_schemas_are_warned_of(tester: Tester) -> None:
    older: Any = {"type": "record", "name": "K", "fields": [{"name": "id", "type": "int"}]}
    newer: Any = {"type": "record", "name": "K", "fields": [{"name": "id", "type": "long"}]}

    class Released:
        schema = str(newer).replace("'", '"')
        history = (str(older).replace("'", '"'),)
        row = dict

    stream, group = counting(Avro(Released()))
    with capture_logs() as logs:
        tester.run(group, partitions=1)
        for codec in (Avro(newer), Avro(older), Avro(newer)):
            tester.emit_raw(stream.name, codec.encode({"id": 1}), b"1")
    warnings = [line for line in logs if line["event"] == "equal keys have different bytes"]
    assert len(warnings) == 1
    assert "written with several schemas" in warnings[0]["reason"]


@pytest.mark.parametrize("bounds", [("a", None), (None, "b"), ("a", "b")])
@pytest.mark.parametrize("codec", [Avro("string"), Json(), SHOP_SKU])
def test_a_range_of_keys_without_an_order_is_refused(tester: Tester, codec: Any, bounds: Any) -> None:
    stream, group = counting(codec)
    tester.run(group)
    with pytest.raises(GraphError, match="the keys of 'g-table' have no order that a range could follow"):
        tester.view(group.table).range(*bounds)
    with pytest.raises(GraphError, match="no order"):
        tester.processor(group).range(group.table, *bounds)
    assert stream.name == "sales"


@pytest.mark.parametrize("codec", [Avro("string"), Json(), SHOP_SKU])
def test_a_prefix_of_keys_that_say_where_they_end_is_refused(tester: Tester, codec: Any) -> None:
    state: State[Any, int] = State("rows", key=codec, value=Long())
    stream: Stream[Any, Any] = Stream("sales", codec, Json())
    refused: list[str] = []

    def count(ctx: Context[Any, int], _: Any) -> None:
        ctx.set(1)
        with pytest.raises(GraphError, match="no key of 'rows' begins with another one") as error:
            ctx.table(state).prefix(ctx.key)
        refused.append(str(error.value))

    group = Group("g", Input(stream, count), state, Persist(Long()))
    tester.run(group)
    tester.emit(stream, KEY if codec is SHOP_SKU else "a", 1)
    view, text = tester.view(group.table), "no key of 'g-table' begins with another one"
    assert len(refused) == 1
    for read in (view.iterate, view.watch):
        with pytest.raises(GraphError, match=text):
            read(prefix="a")


def test_rows_of_a_state_are_found_by_several_keys_that_are_records(tester: Tester) -> None:
    stream: Stream[Any, Any] = Stream("sales", SHOP_SKU, Json())
    state: State[Any, int] = State("rows", key=SHOP_SKU, value=Long())
    found: list[Any] = []

    def count(ctx: Context[Any, Any], _: Any) -> None:
        ctx.table(state).put(ctx.key, 7)
        found.append(ctx.table(state).get_many([ctx.key, dict(ctx.key)]))

    tester.run(Group("g", Input(stream, count), state))
    tester.emit(stream, KEY, 1)
    ((key, row),) = found[0].items()
    assert (key, row) == (KEY, 7)


LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5)


@settings(deadline=None, database=None, max_examples=200)
@given(keys=st.sets(LONGS, max_size=12), start=st.none() | LONGS, end=st.none() | LONGS)
def test_spans_of_longs_hold_the_keys_of_a_range_in_their_order(
    keys: set[int], start: int | None, end: int | None
) -> None:
    codec = Long()
    encoded = sorted(map(codec.encode, keys))
    found = [
        codec.decode(key)
        for first, after in codec.spans(start, end)
        for key in encoded
        if (first is None or first <= key) and (after is None or key < after)
    ]
    assert found == sorted(
        key for key in keys if (start is None or start <= key) and (end is None or key < end)
    )


def test_negative_numbers_come_first_in_views_processors_and_state_tables(tester: Tester) -> None:
    stream, _ = counting(Long())
    found: dict[str, list[int]] = {}

    def count(ctx: Context[int, int], _: Any) -> None:
        ctx.set(1)
        table = ctx.table(NUMBERS)
        table.put(ctx.key, 1)
        found["state"] = [key for key, _ in table.range(-5, 10)]

    group: Group[int, int] = Group("g", Input(stream, count), NUMBERS, Persist(Long()))
    keys = [-(2**63), -10, -5, -3, 0, 7, 10, 2**63 - 1]
    shuffled = random.Random(3).sample(keys, len(keys))
    tester.run(group, partitions=1)
    for key in shuffled:
        tester.emit(stream, key, {})
    view = tester.view(group.table)
    assert [key for key, _ in view.range()] == keys
    assert [key for key, _ in view.range(-5, 10)] == [-5, -3, 0, 7]
    assert [key for key, _ in view.range(-5, limit=2)] == [-5, -3]
    assert [key for key, _ in tester.processor(group).range(group.table, -5, 10)] == [-5, -3, 0, 7]
    assert found["state"] == [-5, -3, 0, 7]


@pytest.mark.parametrize("codec", [String(), Bytes(), Long()])
def test_codecs_with_an_order_say_so(codec: Any) -> None:
    assert codec.spans(None, None)


def test_json_takes_values_of_named_branches() -> None:
    value = avro_branch("Created", {"color": avro_branch("Color", "RED")})
    assert Json().encode(value) == b'{"color":"RED"}'
