from collections.abc import Callable
from typing import Any

import pytest

from streamtable.base.partitioner import murmur2
from streamtable.base.topics import Stream
from streamtable.base.types import Headers, RecordBatch
from streamtable.codec.plain import Json, String
from streamtable.errors import GraphError, Rejected, WrongPartition
from streamtable.handlers.context import BatchContext, Context
from streamtable.handlers.own_keys import OwnKeys
from streamtable.handlers.services import HandlerServices
from streamtable.store.memory import MemoryStores
from streamtable.tables.working_table import WorkingTable

Make = Callable[..., RecordBatch]
BYTES_MAX = 1_000_000
OUT = Stream("out", String(), String())
OWN_KEYS = OwnKeys("g", "g-table", 0, 1_000, murmur2)


class Emitted(list[Any]):
    def __call__(
        self, stream: Stream[Any, Any], key: Any, value: Any, headers: Headers, timestamp_ms: int
    ) -> None:
        self.append((stream, key, value, headers, timestamp_ms))


def services(emitted: Emitted) -> HandlerServices:
    return HandlerServices(emitted, lambda *_, **__: None, lambda *_: None)


@pytest.fixture
def table(stores: MemoryStores) -> WorkingTable[Any]:
    return WorkingTable(stores.open("t", 0), Json(), 1 << 20)


def each(context: Context[Any, Any], records: RecordBatch, handler: Callable[..., None]) -> None:
    keys = [String().decode(key) for key in records.keys if key is not None]
    context.each(records, keys, [String().decode(value) for value in records.values if value], handler)


def test_a_handler_sees_each_record_with_its_key_row_and_place(table: WorkingTable[Any], batch: Make) -> None:
    seen: list[Any] = []

    def handle(ctx: Context[str, list[str]], event: str) -> None:
        seen.append((ctx.key, event, ctx.value, ctx.topic, ctx.partition, ctx.offset, ctx.timestamp_ms))
        ctx.set([*(ctx.value or []), event])

    records = batch("in", [(b"a", b"x"), (b"b", b"y"), (b"a", b"z")], first=10, partition=2)
    each(Context(table, services(Emitted())), records, handle)
    assert seen == [
        ("a", "x", None, "in", 2, 10, 1_000),
        ("b", "y", None, "in", 2, 11, 1_000),
        ("a", "z", ["x"], "in", 2, 12, 1_000),
    ]
    assert table.get(b"a") == ["x", "z"]


def test_deleting_takes_the_row_away_for_the_next_record(table: WorkingTable[Any], batch: Make) -> None:
    rows: list[Any] = []

    def handle(ctx: Context[str, int], event: str) -> None:
        rows.append(ctx.value)
        ctx.delete() if event == "delete" else ctx.set(1)

    each(
        Context(table, services(Emitted())),
        batch("in", [(b"a", b"s"), (b"a", b"delete"), (b"a", b"s")]),
        handle,
    )
    assert rows == [None, 1, None]


def test_a_row_of_none_is_refused_because_delete_says_it(table: WorkingTable[Any], batch: Make) -> None:
    with pytest.raises(TypeError, match=r"ctx\.delete"):
        each(Context(table, services(Emitted())), batch("in", [(b"a", b"x")]), lambda ctx, _: ctx.set(None))


def test_a_value_changed_in_place_is_written_only_when_it_is_set(
    table: WorkingTable[Any], batch: Make
) -> None:
    table.put(b"a", {"n": 1})
    table.committed()
    each(
        Context(table, services(Emitted())), batch("in", [(b"a", b"x")]), lambda ctx, _: ctx.value.update(n=2)
    )
    assert table.changes(BYTES_MAX) == []


def test_after_an_exception_the_index_says_which_record_it_was(table: WorkingTable[Any], batch: Make) -> None:
    context: Context[str, Any] = Context(table, services(Emitted()))

    def handle(ctx: Context[str, Any], event: str) -> None:
        if event == "bad":
            ctx.fail("no")

    with pytest.raises(Rejected, match="no"):
        each(context, batch("in", [(b"a", b"x"), (b"a", b"bad"), (b"a", b"y")]), handle)
    assert context.index == 1


@pytest.mark.parametrize("use", ["value", "set", "delete"])
def test_without_a_table_its_use_is_a_mistake_of_the_graph_not_of_the_record(use: str, batch: Make) -> None:
    def handle(ctx: Context[str, int], event: str) -> None:
        getattr(ctx, use) if use == "value" else getattr(ctx, use)(*([1] if use == "set" else []))

    with pytest.raises(GraphError, match="add Persist"):
        each(Context(None, services(Emitted())), batch("in", [(b"a", b"x")]), handle)


def test_what_is_emitted_goes_to_the_task_as_it_is(table: WorkingTable[Any], batch: Make) -> None:
    emitted = Emitted()

    def handle(ctx: Context[str, int], event: str) -> None:
        ctx.emit(OUT, "k", None, headers=[("h", b"1")], timestamp_ms=7)
        ctx.emit(OUT, "k", event)

    each(Context(table, services(emitted)), batch("in", [(b"a", b"x")]), handle)
    assert emitted == [(OUT, "k", None, [("h", b"1")], 7), (OUT, "k", "x", (), 0)]


def whole(batch_: BatchContext[str, str, Any], records: RecordBatch, handler: Callable[..., None]) -> None:
    keys = [key.decode() for key in records.keys if key is not None]
    batch_.whole(records, keys, [value.decode() for value in records.values if value], handler)


def test_keys_that_are_equal_in_python_and_have_a_row_each_are_not_read_together(
    table: WorkingTable[Any], batch: Make
) -> None:
    table.put(b"1", 5)

    def handle(records: BatchContext[Any, Any, Any]) -> None:
        assert records.get_many([1, 1]) == {1: 5}
        with pytest.raises(ValueError, match="equals another key in Python"):
            records.get_many([1, True])

    context: BatchContext[Any, Any, Any] = BatchContext(table, Json(), services(Emitted()))
    context.whole(batch("in", [(b"1", b"x")]), [1], [b"x"], handle)


def test_a_batch_reads_and_writes_rows_by_decoded_keys(table: WorkingTable[Any], batch: Make) -> None:
    table.put(b"b", 5)
    seen: list[Any] = []

    def handle(records: BatchContext[str, str, int]) -> None:
        seen.append((len(records), records.keys, records.events, records.offsets, records.timestamps_ms))
        seen.append(records.get_many(records.keys))
        records.put_many({"a": 1, "b": None})

    whole(
        BatchContext(table, String(), services(Emitted())),
        batch("in", [(b"a", b"x"), (b"b", b"y"), (b"a", b"z")]),
        handle,
    )
    assert seen == [
        (3, ["a", "b", "a"], ["x", "y", "z"], [0, 1, 2], [1_000] * 3),
        {"a": None, "b": 5},
    ]
    assert dict(table.changes(BYTES_MAX)) == {b"a": Json().encode(1), b"b": None}


def test_a_key_that_its_producer_encodes_in_another_way_belongs_to_the_partition_of_its_record(
    table: WorkingTable[Any], batch: Make
) -> None:
    rows = BatchContext[Any, str, int](
        table, Json(), HandlerServices(Emitted(), lambda *_, **__: None, lambda *_: None, own_keys=OWN_KEYS)
    )
    rows.whole(batch("in", [(b" 1.50 ", b"x")]), [1.5], ["x"], lambda made: made.put_many({1.5: 1}))
    assert dict(table.changes(BYTES_MAX)) == {b"1.5": b"1"}


def test_a_key_that_equals_one_of_the_batch_only_in_python_is_checked(
    table: WorkingTable[Any], batch: Make
) -> None:
    rows = BatchContext[Any, str, int](
        table, Json(), HandlerServices(Emitted(), lambda *_, **__: None, lambda *_: None, own_keys=OWN_KEYS)
    )
    with pytest.raises(WrongPartition, match="key b'true'"):
        rows.whole(batch("in", [(b"1", b"x")]), [1], ["x"], lambda made: made.put_many({True: 1}))


def test_a_batch_has_the_headers_of_each_record(table: WorkingTable[Any], record: Any) -> None:
    seen: list[Any] = []
    records = RecordBatch("in", 0, [record(b"a", b"x"), record(b"a", b"y", 1, [("h", None)])])
    whole(
        BatchContext(table, String(), services(Emitted())),
        records,
        lambda b: seen.append([*map(b.headers, range(2))]),
    )
    assert seen == [[(), [("h", None)]]]


def test_a_batch_without_a_table_cannot_use_one(batch: Make) -> None:
    made: BatchContext[str, str, int] = BatchContext(None, String(), services(Emitted()))
    with pytest.raises(GraphError, match="add Persist"):
        whole(made, batch("in", [(b"a", b"x")]), lambda b: b.put_many({"a": 1}))
