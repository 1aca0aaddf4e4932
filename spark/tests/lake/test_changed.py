"""Arguments that differ from the previous run's: other topics, and other codecs."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from pyspark.sql import SparkSession
from spark.tests.lake.runs import ENDS, Runs, crash_at
from spark.tests.lake.stage import Stage
from spark.tests.lake.test_etl import recompute

from streamtable import Avro
from streamtable_spark.errors import ConfigurationError, InputLost, OtherLake
from streamtable_spark.jobs.files import Files
from streamtable_spark.jobs.lake import QUARANTINE, Lake
from streamtable_spark.jobs.topics import Contents, Topic
from streamtable_spark.transforms.avro import AvroCodec
from streamtable_spark.transforms.codecs import Codec, PlainCodec, PlainKind

pytestmark = pytest.mark.broker
JSON = PlainCodec("json")


class Shop:
    """Two topics, and the lakes that are made from them."""

    def __init__(self, spark: SparkSession, stage: Stage) -> None:
        self.spark, self.stage = spark, stage
        self.one, self.two = f"{stage.clicks}-one", f"{stage.clicks}-two"
        stage.create(self.one, self.two)
        self._producer = Producer(
            {"enable.idempotence": True, "bootstrap.servers": stage.servers, "log_level": 0}
        )

    def send(self, *topics: str, value: bytes = b"1") -> None:
        """Send a record to each topic."""
        for topic in topics:
            self._producer.produce(topic, value, b"k", partition=0)
        assert self._producer.flush(60) == 0

    def lake(self, folder: Path, *topics: str, kind: str = "delta", codec: Codec = JSON) -> Runs:
        return Runs(self.spark, self.stage, folder, [Topic(name, name, codec) for name in topics], kind)


@pytest.fixture
def shop(spark: SparkSession, stage: Stage) -> Iterator[Shop]:
    made = Shop(spark, stage)
    made.send(made.one, made.two)
    yield made
    stage.delete(made.one, made.two)


def leave_out(spark: SparkSession, folder: Path, topic: str, *, finish: bool) -> None:
    """Plan the next batch without a topic, as Spark does if it is not subscribed."""
    last = max(int(path.name) for path in (folder / "checkpoint/commits").iterdir() if path.name.isdigit())
    head, _, offsets = (folder / f"checkpoint/offsets/{last}").read_text().rpartition("\n")
    left = {name: parts for name, parts in json.loads(offsets).items() if name != topic}
    planned = folder / f"checkpoint/offsets/{last + 1}"
    Files(spark).write(str(planned), f"{head}\n{json.dumps(left)}")  # with a checksum beside it
    if finish:
        (folder / f"checkpoint/commits/{last + 1}").write_text('v1\n{"nextBatchWatermarkMs":0}')


def positions(runs: Runs) -> list[tuple[str, int, int]]:
    return sorted((row["topic"], row["partition"], row["offset"]) for row in runs.rows("bronze", "*"))


@pytest.mark.parametrize("allow", [False, True])
def test_a_run_that_leaves_out_a_topic_of_the_lake_is_refused_and_the_next_whole_one_reads_each_record_once(
    shop: Shop, tmp_path: Path, *, allow: bool
) -> None:
    whole = shop.lake(tmp_path, shop.one, shop.two)
    whole.run()
    shop.send(shop.one, shop.two)
    with pytest.raises(ConfigurationError, match=f"also reads {shop.two}: name it too"):
        shop.lake(tmp_path, shop.one).run(allow=allow)
    whole.run()
    assert positions(whole) == [(name, 0, offset) for name in (shop.one, shop.two) for offset in range(2)]


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_topic_that_an_earlier_batch_has_left_out_is_not_read_from_the_beginning_again(
    shop: Shop, tmp_path: Path, kind: str
) -> None:
    whole = shop.lake(tmp_path, shop.one, shop.two, kind=kind)
    whole.run()
    leave_out(shop.spark, tmp_path, shop.two, finish=True)
    with pytest.raises(OtherLake, match=f"batch 1 was read without {shop.two}"):
        whole.run(allow=True)


def test_a_topic_whose_first_records_are_gone_when_it_is_added_is_refused_or_read_from_where_it_begins(
    shop: Shop, tmp_path: Path
) -> None:
    shop.lake(tmp_path, shop.one).run()
    shop.send(shop.two, shop.two)
    (deleted,) = shop.stage.admin.delete_records([TopicPartition(shop.two, 0, 2)]).values()
    deleted.result(60)
    whole = shop.lake(tmp_path, shop.one, shop.two)
    for _ in range(2):
        with pytest.raises(
            InputLost, match=rf"2 offsets .* {shop.two}\[0\] offsets 0 to 1 .*for a topic that is added"
        ):
            whole.run()
    whole.run(allow=True)
    assert positions(whole) == [(shop.one, 0, 0), (shop.two, 0, 2)]
    origin = Lake(shop.spark, str(tmp_path)).known()
    assert list(origin.missing) == [[shop.two, 0, 0, 2]]


def test_a_lake_without_its_table_of_raw_records_is_refused(shop: Shop, tmp_path: Path) -> None:
    whole = shop.lake(tmp_path, shop.one)
    whole.run()
    shutil.rmtree(tmp_path / "bronze")
    for _ in range(2):
        with pytest.raises(OtherLake, match=r"bronze is gone, and .* ends with batch 0"):
            whole.run()


def test_a_batch_that_was_planned_without_a_topic_is_planned_again(shop: Shop, tmp_path: Path) -> None:
    whole = shop.lake(tmp_path, shop.one, shop.two)
    whole.run()
    shop.send(shop.one, shop.two)
    leave_out(shop.spark, tmp_path, shop.two, finish=False)
    whole.run()
    assert positions(whole) == [(name, 0, offset) for name in (shop.one, shop.two) for offset in range(2)]


def test_a_batch_that_was_planned_without_a_topic_and_that_a_table_has_is_refused(
    shop: Shop, tmp_path: Path
) -> None:
    whole = shop.lake(tmp_path, shop.one, shop.two)
    whole.run()
    shop.send(shop.one)
    with pytest.raises(ENDS):
        whole.run(reached=crash_at("bronze written"))
    (tmp_path / "checkpoint/offsets/1").unlink()
    (tmp_path / "checkpoint/offsets/.1.crc").unlink()
    leave_out(shop.spark, tmp_path, shop.two, finish=False)
    with pytest.raises(OtherLake, match=f"plans batch 1 without {shop.two}"):
        whole.run(allow=True)


def test_a_topic_is_added_by_naming_it_also_while_it_is_empty(shop: Shop, tmp_path: Path) -> None:
    shop.lake(tmp_path, shop.one).run()
    empty = shop.lake(tmp_path, shop.one, shop.stage.updates)
    for _ in range(2):
        empty.run()
    whole = shop.lake(tmp_path, shop.one, shop.stage.updates, shop.two)
    whole.run()
    assert positions(whole) == [(shop.one, 0, 0), (shop.two, 0, 0)]


def numbers(kind: str) -> str:
    fields = [{"name": "n", "type": kind}, {"name": "all", "type": {"type": "array", "items": kind}}]
    return json.dumps({"type": "record", "name": "Numbers", "fields": fields})


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_codec_or_kind_of_keys_that_does_not_fit_the_table_is_refused_before_anything_is_read(
    shop: Shop, tmp_path: Path, kind: str
) -> None:
    made = shop.lake(tmp_path, shop.one, kind=kind, codec=PlainCodec("string"))
    made.run()
    said = f"topic {shop.one}: event is string in silver/{shop.one}, and these arguments make it "
    for codec, other in (
        (PlainCodec("bytes"), "binary"),
        (AvroCodec(numbers("int")), "struct<n:int,all:array<int>>"),
    ):
        with pytest.raises(ConfigurationError, match=said + other):
            shop.lake(tmp_path, shop.one, kind=kind, codec=codec).run()
    keys = Contents((Topic(shop.one, shop.one, PlainCodec("string"), text_keys=False),))
    with pytest.raises(ConfigurationError, match=r"key is string in .* make it binary"):
        Runs(shop.spark, shop.stage, tmp_path, format=kind, contents=keys).run()
    made.run()


def test_a_topic_whose_rows_are_in_a_table_of_another_name_is_refused(shop: Shop, tmp_path: Path) -> None:
    def named(**topics: str) -> Runs:
        contents = Contents(tuple(Topic(name, kafka, JSON) for name, kafka in topics.items()))
        return Runs(shop.spark, shop.stage, tmp_path, contents=contents)

    named(a=shop.one, b=shop.two).run()
    for other in (named(a=shop.two, b=shop.one), named(x=shop.one, y=shop.two)):
        for again in (other.run, lambda other=other: recompute(other)):
            with pytest.raises(
                ConfigurationError, match=r"are in silver/[ab], not in .*: give --topics [ab]="
            ):
                again()
    named(b=shop.two, a=shop.one).run()


def paid(*branches: str) -> AvroCodec:
    fields = {"Card": ["id", "no"], "Bank": ["id", "iban"], "Cash": ["id"]}
    by: list[Any] = [
        {
            "type": "record",
            "name": name,
            "fields": [{"name": each, "type": "string"} for each in fields[name]],
        }
        for name in branches
    ]
    tree = {"type": "record", "name": "Paid", "fields": [{"name": "by", "type": by if by[1:] else by[0]}]}
    return AvroCodec(json.dumps(tree))


def test_a_type_of_a_union_in_front_of_others_is_refused_and_one_behind_them_gets_a_column(
    shop: Shop, tmp_path: Path
) -> None:
    shop.send(shop.one, value=Avro(paid("Card", "Bank").reader).encode({"by": {"id": "1", "no": "47"}}))
    shop.lake(tmp_path, shop.one, codec=paid("Card", "Bank")).run()
    for other in (("Cash", "Card", "Bank"), ("Bank", "Card"), ("Card", "Cash"), ("Card",)):
        with pytest.raises(ConfigurationError, match=r"event\.by"):
            shop.lake(tmp_path, shop.one, codec=paid(*other)).run()
    wider = shop.lake(tmp_path, shop.one, codec=paid("Card", "Bank", "Cash"))
    wider.run()
    with pytest.raises(ConfigurationError, match="for each of Card, Bank, Cash in silver"):
        shop.lake(tmp_path, shop.one, codec=paid("Card", "Bank")).run()


def test_a_backfill_with_a_codec_that_does_not_fit_the_table_is_refused(shop: Shop, tmp_path: Path) -> None:
    shop.lake(tmp_path, shop.one).run()
    with pytest.raises(ConfigurationError, match=r"event is string in .* make it binary"):
        recompute(shop.lake(tmp_path, shop.one, codec=PlainCodec("bytes")))


@pytest.mark.parametrize(
    ("wider", "fits"),
    [("long", True), pytest.param("double", True, marks=pytest.mark.faults_long), ("float", False)],
)
def test_a_table_takes_the_wider_numbers_of_a_later_schema_where_delta_can_widen_them(
    shop: Shop, tmp_path: Path, *, wider: str, fits: bool
) -> None:
    shop.send(shop.two, value=Avro(numbers("int")).encode({"n": 1, "all": [2]}))
    made = shop.lake(tmp_path, shop.two, codec=AvroCodec(numbers("int")))
    made.run()
    later = shop.lake(tmp_path, shop.two, codec=AvroCodec(numbers(wider), (numbers("int"),)))
    shop.send(shop.two, value=Avro(numbers(wider)).encode({"n": 2**40, "all": [2**41]}))
    if not fits:
        with pytest.raises(ConfigurationError, match=r"event.* is int in .* make it float"):
            later.run()
        return
    later.run()
    assert {row["event"]["n"]: row["event"]["all"] for row in later.rows("silver/" + shop.two, "event")} == {
        1: [2],
        2**40: [2**41],
    }
    with pytest.raises(ConfigurationError, match=r"event.* is .* make it int"):
        made.run()


@pytest.mark.parametrize(
    ("kind", "step", "codecs", "last"),
    [
        ("delta", "silver written", ("json", "string"), b"{"),
        ("delta", "silver written", ("string", "json"), b"\xff"),
        ("parquet", "batch written", ("json", "string"), b"{"),
    ],
)
def test_each_record_of_a_batch_that_is_repeated_with_another_codec_is_in_silver_or_in_quarantine(
    shop: Shop, tmp_path: Path, kind: str, step: str, codecs: tuple[PlainKind, PlainKind], last: bytes
) -> None:
    shop.send(shop.one, value=b"{")
    shop.send(shop.one, value=last)
    first, second = (shop.lake(tmp_path, shop.one, kind=kind, codec=PlainCodec(each)) for each in codecs)
    with pytest.raises(ENDS):
        first.run(reached=crash_at(step))
    counts = second.run()
    good, bad = (
        [row["offset"] for row in second.rows(name, "offset")] for name in (f"silver/{shop.one}", QUARANTINE)
    )
    assert sorted([*good, *bad]) == [0, 1, 2]
    assert (counts[shop.one], counts[f"{shop.one} quarantined"]) == (len(good), len(bad))


def test_every_count_of_a_run_without_new_records_is_0(shop: Shop, tmp_path: Path) -> None:
    made = shop.lake(tmp_path, shop.one)
    counts = {shop.one: 1, f"{shop.one} quarantined": 0, "batches": 1, "records": 1}
    assert made.run() == counts
    assert made.run() == dict.fromkeys(counts, 0)
