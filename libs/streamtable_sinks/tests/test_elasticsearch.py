"""Elasticsearch as a target passes the conformance suite, and ignores what comes late."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import time
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from elasticsearch import Elasticsearch as Client
from libs.streamtable_sinks.tests.starts import MEMBERS, start_at_once

from localstores.elasticsearch import ElasticsearchServer
from streamtable import Avro, Codec, Json, Long, Stream, String, Table, Typed
from streamtable.errors import ConfigurationError, Rejected, RetryLater
from streamtable.flow import Windowed, WindowedKey
from streamtable_capture import ConnectKey
from streamtable_sinks import Sink, SinkChange, SinkPartition, SinkSource, SinkTarget
from streamtable_sinks.elasticsearch import POSITIONS, Elasticsearch
from streamtable_sinks.testing import VALUE, TargetSuite, changed
from streamtable_testing import Tester

pytestmark = pytest.mark.broker  # its jars must be there


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with (
        tempfile.TemporaryDirectory(prefix="streamtable-sinks-") as folder,
        ElasticsearchServer(Path(folder), brief=True) as server,
    ):
        yield server.url


def found(url: str, index: str) -> list[dict[str, Any]]:
    with Client(url) as client:
        client.indices.refresh(index=index)
        hits = client.search(index=index, size=10_000, sort=["number"])["hits"]["hits"]
        return [hit["_source"] for hit in hits]


class Suite(TargetSuite):
    atomic = False
    index = ""

    @pytest.fixture(autouse=True)
    def _index(self, url: str) -> Iterator[None]:
        self.url = url
        yield
        with Client(url) as client:
            client.indices.delete(index=self.index, ignore_unavailable=True)

    def client(self) -> SinkTarget:
        return Elasticsearch(self.url, self.index, document=lambda key, value: {"key": key, **value})

    def bad(self) -> SinkChange:
        return SinkChange("b", {"number": 1 << 70, "text": None}, 1, 0)


class TestDocuments(Suite):
    keyed = True
    index = "suite-documents"

    def numbers(self) -> Sequence[tuple[str, int]]:
        return sorted((each["key"], each["number"]) for each in found(self.url, self.index))


class TestEvents(Suite):
    index = "suite-events"

    def numbers(self) -> Sequence[tuple[str, int]]:
        return [
            (each["key"], each["number"])
            for each in sorted(found(self.url, self.index), key=lambda each: each["at"])
        ]

    def client(self) -> SinkTarget:
        return InOrder(self.url, self.index, document=lambda key, value: {"key": key, **value})


class InOrder(Elasticsearch):
    """Adds the offset to each document, since Elasticsearch keeps no order."""

    def _made(self, change: SinkChange) -> dict[str, Any]:
        return {**super()._made(change), "at": change.offset}


def ids(target: Elasticsearch, key: Codec[Any], *keys: Any) -> list[str]:
    """Write a document for each key of a table. Returns the ids in the order of the keys."""
    place = SinkPartition("ids", "ids", "id", 0)
    target.open(SinkSource("ids", "ids", True, key, VALUE))
    changes = [SinkChange(each, {"number": at, "text": None}, at, 0) for at, each in enumerate(keys)]
    target.write(place, target.take(place, "a").epoch, None, len(keys), changes)
    target._client.indices.refresh(index="ids")
    hits = target._client.search(index="ids", size=100, sort=["number"])["hits"]["hits"]
    target._client.indices.delete(index="ids")
    target.close()
    return [hit["_id"] for hit in hits]


def test_keys_that_differ_have_documents_of_their_own(url: str) -> None:
    keys = ["a", 1, "1", True, "true", "True", None, "null", "None", [1], "[1]", {"a": 1}, '"1"', 1.5]
    assert ids(Elasticsearch(url, "ids"), Json(), *keys) == [
        "a", "1", '"1"', "true", '"true"', "True", "null", '"null"', "None", "[1]", '"[1]"', '{"a": 1}', '"\\"1\\""', "1.5",
    ]  # fmt: skip


class ShopKey(msgspec.Struct, frozen=True):
    shop: str


@pytest.mark.parametrize(
    ("codec", "key", "expected"),
    [
        (String(), "1", "1"),
        (Typed(str), "1", "1"),
        (Long(), 12345678, "12345678"),
        (Avro({"type": "string", "logicalType": "uuid"}), UUID(int=1), str(UUID(int=1))),
        (ConnectKey(id=str), "1", "1"),
        (ConnectKey(id=int, line=int), (1, 2), "[1, 2]"),
        (Typed(ShopKey), ShopKey("a"), '{"shop": "a"}'),
        (WindowedKey(String(), 1000), Windowed("a", 0, 1000), '["a", 0, 1000]'),
    ],
    ids=str,
)
def test_the_id_of_a_document_is_the_key_as_text_or_its_json_without_the_name_of_a_class(
    codec: Codec[Any], key: Any, expected: str, url: str
) -> None:
    assert ids(Elasticsearch(url, "ids"), codec, key) == [expected]
    assert ids(Elasticsearch(url, "ids", id=str), codec, key) == [str(key)]


def test_a_batch_that_arrives_after_later_changes_changes_nothing(url: str) -> None:
    place = SinkPartition("late", "rows", "id", 0)
    target = Elasticsearch(url, "late", document=lambda key, value: {"key": key, **value})
    target.open(SinkSource("late", "rows", True, String(), VALUE))
    epoch = target.take(place, "a").epoch
    target.write(place, epoch, None, 0, ())
    early, late = changed(("a", 1), ("gone", 1)), changed(("a", 2), ("gone", None), first=2)
    target.write(place, epoch, 0, 2, early)
    target.write(place, epoch, 2, 4, late)
    target._bulk(place, target._held(place).generation, early)  # a former owner, frozen after it had compared
    assert [(each["key"], each["number"]) for each in found(url, "late")] == [("a", 2)]
    target.close()


def test_what_is_written_after_a_reset_replaces_what_was_written_before(tester: Tester, url: str) -> None:
    codec = Avro({"type": "record", "name": "R", "fields": [{"name": "number", "type": "long"}]})
    rows: Table[str, Any] = Table("rows", String(), codec)
    records: Stream[str, Any] = Stream("rows", String(), codec)
    doubled = False
    target = Elasticsearch(
        url, "reset", document=lambda _, value: {"number": value["number"] * (2 if doubled else 1)}
    )
    tester.create(records, partitions=1)
    out = Sink("out", rows, target, max_wait=0.0)
    tester.run(out)
    tester.emit_many(records, [("a", {"number": 1}), ("b", {"number": 2})])
    tester.advance(2)
    assert [each["number"] for each in found(url, "reset")] == [1, 2]
    doubled = True
    place = SinkPartition("out", "rows", tester.kafka.cluster().topics(["rows"])["rows"].topic_id, 0)
    target.write(place, target.take(place, "operator").epoch, None, 0, ())
    target.write(
        place,
        target._held(place).epoch,
        0,
        2,
        [SinkChange("a", {"number": 1}, 0, 0), SinkChange("b", {"number": 2}, 1, 0)],
    )
    assert [each["number"] for each in found(url, "reset")] == [2, 4]
    target.close()


class Order(msgspec.Struct, frozen=True):
    id: str
    number: int
    extra: Any = None


def test_a_typed_value_is_the_document_of_its_fields(tester: Tester, url: str) -> None:
    orders: Stream[str, Order] = Stream("orders", String(), Typed(Order))
    target = Elasticsearch(url, "orders")
    tester.run(Sink("out", orders, target, max_wait=0.0))
    tester.emit(orders, "a", Order("o1", 1, {"n": [1, 2]}))
    tester.advance(2)
    assert found(url, "orders") == [{"id": "o1", "number": 1, "extra": {"n": [1, 2]}}]
    target.close()


def test_a_document_of_avro_has_exact_decimals_and_texts_as_typed_values_have(
    tester: Tester, url: str
) -> None:
    """The client would make a float of a decimal."""
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 2}
    fields = [
        {"name": "paid", "type": {"type": "array", "items": decimal}},
        {"name": "seal", "type": "bytes"},
        {"name": "time", "type": {"type": "int", "logicalType": "time-millis"}},
    ]
    codec: Avro[Any] = Avro({"type": "record", "name": "Payment", "fields": fields})
    payments: Stream[str, Any] = Stream("payments", String(), codec)
    value = {"paid": [Decimal("12345678901234567890.12")], "seal": b"\xff", "time": time(1, 2)}
    documents = {"payments": None, "made-payments": lambda key, value: {"key": key, **value}}
    for name, document in documents.items():
        tester.run(
            Sink(name, payments, Elasticsearch(url, name, document=document), max_wait=0.0), partitions=1
        )
    tester.emit(payments, "a", value)
    tester.advance(2)
    with Client(url) as client:
        sources = [client.get(index=name, id="payments-0-0")["_source"] for name in documents]
    expected = {"paid": ["12345678901234567890.12"], "seal": "/w==", "time": "01:02:00"}
    assert sources == [expected, {"key": "a", **expected}]


def test_a_document_that_is_no_json_is_a_dead_letter_and_the_others_are_written(
    tester: Tester, url: str
) -> None:
    numbers: Stream[str, int] = Stream("numbers", String(), Long())
    target = Elasticsearch(
        url, "numbers", document=lambda _, value: {"number": value, "raw": object() if value == 2 else None}
    )
    out = Sink("out", numbers, target, max_wait=0.0)
    tester.run(out, partitions=1)
    tester.emit_many(numbers, [("a", 1), ("b", 2), ("c", 3)])
    tester.advance(2)
    assert [each["number"] for each in found(url, "numbers")] == [1, 3]
    assert [letter.origin.offset for letter in tester.dead_letters(out)] == [1]
    target.close()


def test_members_that_start_at_once_create_their_indices_once(url: str) -> None:
    for number in range(3):
        with Client(url) as client:
            client.indices.delete(index=POSITIONS, ignore_unavailable=True)
        index = f"starts{number}"
        start_at_once(partial(Elasticsearch, url, index, document=lambda _, value: {"number": value}))
        assert [each["number"] for each in found(url, index)] == list(range(MEMBERS))


@pytest.fixture
def operated(url: str) -> Iterator[tuple[Client, Callable[[], None]]]:
    """A client of an operator, and the next write of a sink to the index `operated`."""
    place = SinkPartition("operated", "rows", "id", 0)
    target = Elasticsearch(url, "operated", document=lambda _, value: {"number": value})
    target.open(SinkSource("operated", "rows", True, String(), Long()))
    epoch = target.take(place, "a").epoch
    target.write(place, epoch, None, 0, ())
    with Client(url) as client:
        yield client, lambda: target.write(place, epoch, 0, 1, [SinkChange("a", 1, 0, 0)])
        client.indices.delete(index="operated", ignore_unavailable=True)
    target.close()


def test_an_index_that_was_deleted_loses_no_documents_without_a_word(
    operated: tuple[Client, Callable[[], None]],
) -> None:
    """Elasticsearch answers 404 for each document then, as it does for a deletion that finds nothing."""
    client, write = operated
    client.cluster.put_settings(persistent={"action.auto_create_index": "false"})
    client.indices.delete(index="operated")
    with pytest.raises(ConfigurationError, match="index_not_found"):
        write()
    client.cluster.put_settings(persistent={"action.auto_create_index": None})


@pytest.mark.parametrize("state", ["closed", "read-only"])
def test_an_index_that_is_closed_or_blocked_for_a_while_makes_no_dead_letters(
    state: str, operated: tuple[Client, Callable[[], None]], url: str
) -> None:
    client, write = operated
    if state == "closed":
        client.indices.close(index="operated")
    else:
        client.indices.put_settings(index="operated", settings={"index.blocks.write": True})
    with pytest.raises(RetryLater, match="cannot write at the moment"):
        write()
    if state == "closed":
        client.indices.open(index="operated")
    else:
        client.indices.put_settings(index="operated", settings={"index.blocks.write": False})
    write()
    assert found(url, "operated") == [{"number": 1}]


def source(sink: str, *, is_table: bool = True) -> SinkSource:
    return SinkSource(sink, "rows", is_table, String(), Long())


def written(target: Elasticsearch, place: SinkPartition, value: int, offset: int) -> None:
    """Write one record as a new owner of the partition, which begins there."""
    epoch = target.take(place, "a").epoch
    target.write(place, epoch, None, offset, ())
    target.write(place, epoch, offset, offset + 1, [SinkChange("a", value, offset, 0)])


def make(url: str, index: str) -> Elasticsearch:
    return Elasticsearch(url, index, document=lambda _, value: {"number": value})


def test_documents_of_a_sink_with_another_name_or_of_a_topic_that_was_created_again_replace_those_of_before(
    url: str,
) -> None:
    """The error of a topic that was created again tells to give the sink another name, or to reset it."""
    first = SinkPartition("first", "rows", "old", 0)
    with closing(make(url, "renamed")) as target:
        target.open(source("first"))
        written(target, first, 1, 5_000)
        written(target, first, 2, 6_000)  # after a reset
    with closing(make(url, "renamed")) as target:
        target.open(source("second"))
        written(target, SinkPartition("second", "rows", "new", 0), 3, 0)
        assert found(url, "renamed") == [{"number": 3}]
    with closing(make(url, "renamed")) as target:
        target.open(source("first"))
        written(target, first._replace(topic_id="new"), 4, 1)
        assert found(url, "renamed") == [{"number": 4}]


def test_a_sink_does_not_go_on_in_another_index_as_if_that_had_its_documents(url: str) -> None:
    place = SinkPartition("moved", "rows", "id", 0)
    with closing(make(url, "moved-from")) as target:
        target.open(source("moved"))
        written(target, place, 1, 0)
    with closing(make(url, "moved-to")) as target:
        target.open(source("moved"))
        assert target.take(place, "a").position is None
    with closing(make(url, "moved-from")) as target:
        target.open(source("moved"))
        assert target.take(place, "a").position == 1


def test_an_index_that_was_deleted_and_is_created_again_has_no_position(url: str) -> None:
    place = SinkPartition("again", "rows", "id", 0)
    with closing(make(url, "again")) as target:
        target.open(source("again"))
        written(target, place, 1, 0)
    with Client(url) as client:
        client.indices.delete(index="again")
    for _ in range(2):
        with closing(make(url, "again")) as target:
            target.open(source("again"))
            assert target.take(place, "a").position is None


def test_an_alias_of_indices_in_which_documents_are_not_replaced_is_refused_at_the_start(url: str) -> None:
    with Client(url) as client:
        for number in (1, 2):
            client.indices.create(index=f"old{number}", aliases={"old": {"is_write_index": number == 2}})
            client.indices.create(index=f"none{number}", aliases={"none": {}})
        client.indices.create(index="one1", aliases={"one": {}})
    for name, is_table in (("old", True), ("none", True), ("none", False)):
        with (
            closing(make(url, name)) as target,
            pytest.raises(ConfigurationError, match="an alias of 2 indices"),
        ):
            target.open(source("aliased", is_table=is_table))
    for name, is_table in (("old", False), ("one", True)):
        with closing(make(url, name)) as target:
            target.open(source("aliased", is_table=is_table))


def test_an_event_whose_value_is_null_in_json_is_a_document(tester: Tester, url: str) -> None:
    events: Stream[str, Any] = Stream("nulls", String(), Json())
    with closing(Elasticsearch(url, "nulls", document=lambda _, value: {"number": value})) as target:
        tester.run(Sink("nulls-out", events, target, max_wait=0.0), partitions=1)
        tester.emit_raw("nulls", b"a", b"null")
        tester.emit(events, "b", 2)
        tester.advance(2)
        assert sorted(map(str, found(url, "nulls"))) == ["{'number': 2}", "{'number': None}"]


def test_an_id_that_is_no_unicode_is_a_dead_letter(url: str) -> None:
    place = SinkPartition("odd", "rows", "id", 0)
    with closing(Elasticsearch(url, "odd", id=lambda _: "\ud800")) as target:
        target.open(source("odd"))
        epoch = target.take(place, "a").epoch
        target.write(place, epoch, None, 0, ())
        with pytest.raises(Rejected, match="UnicodeEncodeError"):
            target.write(place, epoch, 0, 1, [SinkChange("a", 1, 0, 0)])


def test_a_dead_letter_that_is_replayed_twice_is_one_document_by_the_place_of_its_record(
    tester: Tester, url: str
) -> None:
    numbers: Stream[str, int] = Stream("replayed", String(), Long())
    bad = [2]
    with closing(
        Elasticsearch(
            url, "replayed", document=lambda _, value: {"number": object() if value in bad else value}
        )
    ) as target:
        out = Sink("replays", numbers, target, max_wait=0.0)
        tester.run(out, partitions=1)
        tester.emit_many(numbers, [("a", 1), ("b", 2)])
        tester.advance(2)
        (letter,) = tester.dead_letters(out)
        bad.clear()
        for _ in range(2):
            tester.retry(out, letter)
            tester.advance(2)
        assert found(url, "replayed") == [{"number": 1}, {"number": 2}]
        with Client(url) as client:
            assert client.exists(index="replayed", id="replayed-0-1")
