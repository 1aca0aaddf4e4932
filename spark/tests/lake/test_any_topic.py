"""Topics that no service of the demo knows: by arguments, and by the graph of a group."""

import argparse
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from spark.tests.lake.runs import Runs
from spark.tests.lake.stage import Stage

from streamtable import Avro, Context, Group, Input, Json, Long, Once, Output, Stream, String, Typed
from streamtable.flow import Flow
from streamtable_spark.errors import ConfigurationError
from streamtable_spark.jobs.topics import Contents, Topic, contents_of, input_topics, topic_arguments
from streamtable_spark.transforms.avro import AvroCodec
from streamtable_spark.transforms.codecs import PlainCodec


def schema(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": list(fields)})


ORDER_V1 = schema({"name": "number", "type": "string"}, {"name": "cents", "type": "long"})
ORDER_V2 = schema(
    {"name": "number", "type": "string"},
    {"name": "cents", "type": "long"},
    {"name": "country", "type": "string", "default": "?"},
)
ORDERS: Stream[str, Any] = Stream("orders", String(), Avro(ORDER_V1))
PAYMENTS: Stream[int, Any] = Stream("payments", Long(), Json())


def declared(*arguments: str) -> Contents:
    parser = argparse.ArgumentParser()
    topic_arguments(parser)
    return contents_of(parser.parse_args(arguments))


def nothing(ctx: Context[Any, Any], event: Any) -> None: ...


GROUP = Group(
    "shop",
    Input(ORDERS, nothing, once=Once(by="number", within=timedelta(days=1))),
    Output(Stream("shipped", String(), Json())),
)


def test_a_groups_inputs_are_topics_whose_ids_are_those_that_count_once() -> None:
    assert input_topics(GROUP, "shop:GROUP") == (
        Topic("orders", "orders", AvroCodec(Avro(ORDER_V1).schema.text), "number"),
    )
    flow = Flow("sales")
    paid = flow.stream(PAYMENTS).group_by("by-cents", lambda event: str(event["cents"]), key=String())
    paid.count("paid", value=Avro("long"))
    found = input_topics([flow, GROUP], "shop:ALL")
    assert [topic.name for topic in found] == ["payments", "orders"], "nothing that is between its groups"
    assert found[0] == Topic("payments", "payments", PlainCodec("json"), None, text_keys=False)


def test_what_is_no_graph_or_has_a_codec_that_spark_does_not_know_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="is a dict: a Group, a Flow"):
        input_topics({}, "shop:NONE")
    numbers: Stream[str, Any] = Stream("numbers", String(), Long())
    with pytest.raises(ConfigurationError, match="--codecs numbers=bytes"):
        input_topics(Group("sums", Input(numbers, nothing)), "shop:SUMS")
    assert declared("--graph", f"{__name__}:GROUP", "--topics", "orders=o-2").topics[0].kafka == "o-2"


class Placed(msgspec.Struct, rename="camel"):
    order_id: str


RENAMED = Group(
    "placing",
    Input(
        Stream("placed", String(), Typed(Placed)),
        nothing,
        once=Once(by="order_id", within=timedelta(days=1)),
    ),
)


def test_the_id_of_a_group_whose_values_have_another_name_for_it_is_given_in_arguments() -> None:
    program = ("--graph", f"{__name__}:RENAMED")
    with pytest.raises(
        ConfigurationError, match=r"no field 'order_id': give --ids placed=FIELD, with its name"
    ):
        declared(*program)
    (topic,) = declared(*program, "--ids", "placed=orderId").topics
    assert topic.id == "orderId"


NUMBERED = Group("numbered", Input(PAYMENTS, nothing, once=Once(by="payment", within=timedelta(days=1))))
UNNUMBERED = Group("unnumbered", Input(PAYMENTS, nothing))
SUMS = Group("sums", Input(Stream("numbers", String(), Long()), nothing))


def test_a_topic_of_a_graph_keeps_its_id_and_kind_of_keys_with_another_codec_or_in_a_second_graph() -> None:
    by_graph = ("--graph", f"{__name__}:NUMBERED")
    expected = Topic("payments", "payments", PlainCodec("json"), "payment", text_keys=False)
    for more in (("--codecs", "payments=json"), ("--graph", f"{__name__}:UNNUMBERED")):
        assert declared(*by_graph, *more).topics == (expected,)
        assert declared(*more, *by_graph).topics == (expected,)
    (text,) = declared(*by_graph, "--codecs", "payments=string").topics
    assert (text.id, text.text_keys) == (None, False), "text has no fields"
    (numbers,) = declared("--graph", f"{__name__}:SUMS", "--codecs", "numbers=bytes").topics
    assert numbers.codec == PlainCodec("bytes"), "as the error says"


def test_of_two_versions_of_a_schema_the_first_is_the_one_that_is_read(tmp_path: Path) -> None:
    for name, text in (("v1", ORDER_V1), ("v2", ORDER_V2)):
        (tmp_path / f"{name}.avsc").write_text(text)
    codec = f"avro:{tmp_path}/v2.avsc+{tmp_path}/v1.avsc"
    (topic,) = declared("--codecs", f"orders={codec}", "--ids", "orders=number").topics
    assert topic == Topic("orders", "orders", AvroCodec(ORDER_V2, (ORDER_V1,)), "number")
    with pytest.raises(ConfigurationError, match="give one schema"):
        declared("--codecs", f"orders={codec}".replace("avro:", "avro-plain:"))


def test_schemas_that_the_services_refuse_to_read_as_the_first_are_refused(tmp_path: Path) -> None:
    for scale in (2, 3):
        cents = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": scale}
        (tmp_path / f"{scale}.avsc").write_text(schema({"name": "cents", "type": cents}))
    with pytest.raises(ConfigurationError, match=r"--codecs orders=.*cents"):
        declared("--codecs", f"orders=avro:{tmp_path}/3.avsc+{tmp_path}/2.avsc")


def test_spaces_beside_commas_do_not_belong_to_names() -> None:
    contents = declared("--codecs", "notes=string, events=json", "--topics", "notes , events=e-2")
    assert [(topic.name, topic.kafka) for topic in contents.topics] == [("notes", "notes"), ("events", "e-2")]


@pytest.fixture
def shop(stage: Stage) -> Iterator[dict[str, str]]:
    """Orders of two versions, one of them repeated, payments as JSON with keys of all kinds, and poison in both."""
    names = {name: f"{stage.clicks}-{name}" for name in ("orders", "payments")}
    stage.create(*names.values())
    producer = Producer({"enable.idempotence": True, "bootstrap.servers": stage.servers, "log_level": 0})
    v1, v2 = Avro(ORDER_V1), Avro(ORDER_V2)
    orders = [
        (b"a", v1.encode({"number": "1", "cents": 5})),
        (b"a", v2.encode({"number": "2", "cents": 6, "country": "DE"})),
        (b"a", v1.encode({"number": "1", "cents": 5})),
        (b"a", b"junk"),
        (None, v1.encode({"number": "3", "cents": 7})),
    ]
    payments = [
        (None, b'{"payment": {"id": "x"}, "cents": 5}'),
        (b"\xff\x00", b'{"payment": {"id": "x"}, "cents": 5}'),
        (b"k", b'{"cents": 5}'),
        (b"k", b"{"),
        (b"k", b"\xff"),
    ]
    for name, records in (("orders", orders), ("payments", payments)):
        for key, value in records:
            producer.produce(names[name], value, key, partition=0)
    assert producer.flush(60) == 0
    yield names
    stage.delete(*names.values())


@pytest.mark.broker
def test_topics_that_are_declared_by_arguments_are_read_and_their_repeats_and_poison_are_found(
    spark: SparkSession, stage: Stage, shop: dict[str, str], tmp_path: Path
) -> None:
    for name, text in (("v1", ORDER_V1), ("v2", ORDER_V2)):
        (tmp_path / f"{name}.avsc").write_text(text)
    contents = declared(
        "--topics", f"orders={shop['orders']},payments={shop['payments']}",
        "--codecs", f"orders=avro:{tmp_path}/v2.avsc+{tmp_path}/v1.avsc,payments=json",
        "--ids", "orders=number,payments=payment.id", "--byte-keys", "payments",
    )  # fmt: skip
    runs = Runs(spark, stage, tmp_path / "lake", contents=contents)
    counts = runs.run()
    assert counts["orders"] == counts["payments"] == 3
    orders = {row["offset"]: row for row in runs.rows("silver/orders", "offset", "key", "event", "repeat")}
    assert orders[0]["event"] == {"number": "1", "cents": 5, "country": "?"}
    assert orders[1]["event"]["country"] == "DE"
    assert {offset: row["repeat"] for offset, row in orders.items()} == {0: False, 1: False, 2: True}
    payments = runs.rows("silver/payments", "offset", "key", "event", "repeat")
    assert {row["offset"]: row["repeat"] for row in payments} == {0: False, 1: True, 2: False}
    assert {row["offset"]: None if row["key"] is None else bytes(row["key"]) for row in payments} == {
        0: None,
        1: b"\xff\x00",
        2: b"k",
    }
    assert sorted(row["reason"] for row in runs.rows("quarantine", "reason")) == [
        "no key",
        "not JSON",
        "not UTF-8",
        "shorter than the 10 bytes in front of a body",
    ]
