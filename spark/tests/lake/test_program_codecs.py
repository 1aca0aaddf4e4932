"""Typed JSON and Protobuf of a program in Spark: columns of the type's fields, and quarantine with the place of what does not fit."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession
from spark.tests.lake.test_layers import records

from contracts.grpc.tweet_reach.v1.tweet_reach_pb2 import GetResponse, Reach
from streamtable import Context, Group, Input, Once, Stream, String, Typed
from streamtable_codecs import Protobuf
from streamtable_spark.jobs.silver import silver
from streamtable_spark.jobs.topics import Topic, input_topics
from streamtable_spark.transforms import layers


class Item(msgspec.Struct):
    sku: str
    price: float


class Placed(msgspec.Struct):
    number: str
    items: list[Item]
    note: str | None = None


class Numbered(msgspec.Struct):
    number: int


def nothing(ctx: Context[Any, Any], event: Any) -> None: ...


PLACED: Stream[str, Any] = Stream("placed", String(), Typed(Placed))
SENT: Stream[str, Any] = Stream("sent", String(), Protobuf(GetResponse))
NUMBERED: Stream[str, Any] = Stream("numbered", String(), Typed(Numbered))
PROGRAM = [
    Group("numbering", Input(NUMBERED, nothing, once=Once(by="number", within=timedelta(days=1)))),
    Group("placing", Input(PLACED, nothing, once=Once(by="number", within=timedelta(days=1)))),
    Group("sending", Input(SENT, nothing)),
]


@pytest.fixture
def kept() -> Iterator[ExitStack]:
    with ExitStack() as kept:
        yield kept


@pytest.fixture
def topics() -> dict[str, Topic]:
    return {each.name: each for each in input_topics(PROGRAM, f"{__name__}:PROGRAM")}


def read(
    spark: SparkSession, topic: Topic, kept: ExitStack, *values: bytes | None
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows of silver, and the reasons of quarantine."""
    raw = layers.bronze(records(spark, *((b"k", value) for value in values)), 0)
    rows = silver(topic, raw, None, kept).orderBy("offset").collect()
    put_aside = layers.quarantine(layers.read(raw, topic.codec)).orderBy("offset").collect()
    return [row.asDict(recursive=True) for row in rows], [row["reason"] for row in put_aside]


def test_typed_json_becomes_columns_and_events_with_one_id_are_repeats(
    spark: SparkSession, topics: dict[str, Topic], kept: ExitStack
) -> None:
    rows, reasons = read(
        spark, topics["placed"], kept,
        b'{"number":"1","items":[{"sku":"x","price":1.5}],"note":"n","more":true}',
        b'{"number":"2","items":[]}',
        b'{"number":"1","items":[]}',
        b'{"number":"3","items":[{"sku":"x","price":"1"}]}',
        b"{",
        None,
    )  # fmt: skip
    assert [row["event"] for row in rows] == [
        {"number": "1", "items": [{"sku": "x", "price": 1.5}], "note": "n"},
        {"number": "2", "items": [], "note": None},
        {"number": "1", "items": [], "note": None},
    ]
    assert [row["repeat"] for row in rows] == [False, False, True]
    assert reasons[0] == "Placed: $.items[0].price: expected float, got str"
    assert reasons[1].startswith("Placed: ")
    assert reasons[2:] == ["no value"]


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("placed", "number", b'{"number":"1","items":[]}'),
        ("numbered", "number", b'{"number":5}'),
        ("sent", "offset", GetResponse(offset=5).SerializeToString()),
        ("sent", "sketch", GetResponse(sketch=b"\x00\xff").SerializeToString()),
    ],
)
def test_an_id_of_any_type_is_found_in_an_earlier_batch(
    spark: SparkSession, topics: dict[str, Topic], kept: ExitStack, name: str, field: str, value: bytes
) -> None:
    topic = replace(topics[name], id=field)
    first, second = (layers.bronze(records(spark, (b"k", value)), batch) for batch in range(2))
    (row,) = silver(topic, second, silver(topic, first, None, kept), kept).collect()
    assert row["repeat"]


def test_protobuf_becomes_columns_with_the_zeros_that_are_not_written(
    spark: SparkSession, topics: dict[str, Topic], kept: ExitStack
) -> None:
    message = GetResponse(
        reach=Reach(reach=2**60, estimate=0.5, top=[Reach.Author(author="a", followers=3)]),
        partition=1,
        stale=True,
        sketch=b"\x00\xff",
    )
    rows, reasons = read(
        spark, topics["sent"], kept, message.SerializeToString(), GetResponse().SerializeToString(), b"\xff"
    )
    first, second = (row["event"] for row in rows)
    assert first == {
        "reach": {"reach": 2**60, "estimate": 0.5, "tweets": 0, "authors": 0, "top": [{"author": "a", "followers": 3}]},
        "partition": 1, "offset": 0, "age_seconds": 0.0, "stale": True, "sketch": b"\x00\xff",
    }  # fmt: skip
    assert second == {
        "reach": None, "partition": 0, "offset": 0, "age_seconds": 0.0, "stale": False, "sketch": b"",
    }  # fmt: skip
    assert [reason[:33] for reason in reasons] == ["GetResponse: not such a message: "]
