"""The cost of a batch does not grow with the lake: it reads the new records, and only earlier days within a horizon."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from spark.tests.lake.runs import Runs
from spark.tests.lake.stage import PARTITIONS, Stage

from contracts.records import USER_CLICK, UserClick
from streamtable import Avro
from streamtable_spark.jobs.etl import around
from streamtable_spark.jobs.formats import DeltaTables
from streamtable_spark.jobs.topics import Contents, Topic
from streamtable_spark.transforms import layers
from streamtable_spark.transforms.avro import AvroCodec

FIRST = date(2026, 3, 1)
BATCHES = 3
CLICKS = Avro(USER_CLICK)
_SPREAD = 0x9E3779B97F4A7C15F39CC0605CEDC835  # odd: different numbers make different ids


def decoded(spark: SparkSession, batch: int) -> DataFrame:
    """Return two decoded clicks of a day of their own."""
    at = datetime(FIRST.year, FIRST.month, FIRST.day + batch, tzinfo=UTC)
    rows = [
        (b"u", CLICKS.encode({"id": f"{batch}-{n}", "user_id": "u", "url": "/", "at": 1}), "c", 0, n, at)
        for n in range(2)
    ]
    schema = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"
    records = spark.createDataFrame(rows, schema).coalesce(1)
    headers = fn.lit(None).cast("array<struct<key: string, value: binary>>")
    raw = layers.bronze(records.withColumn("headers", headers), batch)
    return layers.read(raw, AvroCodec.released(USER_CLICK))


def test_a_batch_reads_its_own_files_and_the_hashes_of_the_days_within_the_horizon(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = DeltaTables(spark, str(tmp_path), "one")
    for batch in range(BATCHES):
        rows = decoded(spark, batch)
        tables.append("bronze", rows.select(*layers.RAW), batch)
        tables.append("silver/c", layers.silver(rows, None, fn.col("event.id")), batch)
    for batch in range(BATCHES):
        assert len(tables.read("bronze").where(fn.col("batch") == batch).inputFiles()) == 1
        day = FIRST + timedelta(batch)
        ((first, last),) = around([day], 1)
        earlier = tables.before("silver/c", batch).where(fn.col("day").between(first, last))
        days = {file.split("day=")[1][:10] for file in earlier.inputFiles()}
        near = (day + timedelta(shift) for shift in (-1, 0, 1))
        assert days == {str(each) for each in near if FIRST <= each < FIRST + timedelta(BATCHES)}
    earlier = earlier.drop("batch", *layers.PLACE)  # as the ETL does
    found = layers.repeated(layers.ids(decoded(spark, 0), fn.col("event.id")), earlier, 1)
    plan = str(found._jdf.queryExecution().executedPlan())
    assert "ReadSchema: struct<id_hash:struct<high:bigint,low:bigint>>" in plan, "and nothing else of a row"
    assert {row["repeat"] for row in found.collect()} == set(), "its day is not within this horizon"


def test_days_near_each_other_are_searched_as_one_span_however_long_the_horizon_is() -> None:
    days = [date(2026, 3, 9), date(2026, 3, 1), date(2026, 3, 2)]
    assert around(days, 0) == [(date(2026, 3, 1), date(2026, 3, 2)), (date(2026, 3, 9), date(2026, 3, 9))]
    assert around(days, 3) == [(date(2026, 2, 26), date(2026, 3, 12))]
    assert around([date.min, date.max], 4_000_000) == [(date.min, date.max)]
    assert around([], 3) == []


def test_the_last_batch_of_a_table_is_known_without_reading_its_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = DeltaTables(spark, str(tmp_path), "one")
    for batch in (3, 5):
        tables.append("silver/c", layers.silver(decoded(spark, batch), None), batch)
    assert tables.last_batch("silver/c") == 5
    last = tables.read("silver/c").agg(fn.max("batch"))
    assert "LocalTableScan" in str(last._jdf.queryExecution().optimizedPlan()) or not last.inputFiles()


@pytest.mark.broker
@pytest.mark.faults_long("20 batches")
@pytest.mark.timeout(3600)
def test_the_last_of_twenty_batches_costs_at_most_a_fifth_more_than_the_second(
    spark: SparkSession, stage: Stage, tmp_path: Path
) -> None:
    batches, records = 20, 100_000
    send_days(stage, batches, records)
    topic = Topic("clicks", stage.clicks, AvroCodec.released(USER_CLICK), "id", horizon_days=1)
    costs: list[Cost] = [cost(spark)]

    def reached(step: str) -> None:
        if step == "batch written":
            costs.append(cost(spark, costs[-1].stage))

    runs = Runs(spark, stage, tmp_path / "lake", contents=Contents((topic,)))
    assert runs.run(batch=records, reached=reached)["batches"] >= batches
    second, last = costs[2], costs[batches]
    assert second.read_rows >= 2 * records, "the batch, and the ids of the day before"
    assert last.read_rows <= 1.2 * second.read_rows, costs
    assert last.cpu_ns <= 1.2 * second.cpu_ns, costs


def send_days(stage: Stage, days: int, records: int) -> None:
    """Send `records` clicks a day, the same number to each partition; retention deletes none of them."""
    keep = ConfigEntry("retention.ms", "-1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, stage.clicks, incremental_configs=[keep])
    for done in stage.admin.incremental_alter_configs([resource]).values():
        done.result(60)
    producer = Producer({"enable.idempotence": True, "bootstrap.servers": stage.servers, "log_level": 0})
    for number in range(days * records):
        at = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(number // records)
        identity = str(UUID(int=number * _SPREAD % 2**128))  # as long as real ones, and as hard to compress
        click = UserClick(id=identity, user_id=f"user-{number % 50}", url="/", at=1)
        producer.produce(
            stage.clicks, CLICKS.encode(click), f"user-{number % 50}",
            partition=number % PARTITIONS, timestamp=int(at.timestamp() * 1000),
        )  # fmt: skip
        if number % 50_000 == 0:  # twice as many do not fit the producer's queue
            producer.flush(60)
    assert producer.flush(60) == 0


class Cost(NamedTuple):
    """The rows that stages have read of files, and their CPU time, up to one of them.

    Not bytes: Parquet's vectored reads are not counted by Hadoop's statistics, so they cover Delta's log alone.
    """

    stage: int
    read_rows: int
    cpu_ns: int


def cost(spark: SparkSession, since: int = -1) -> Cost:
    """Return the cost of all stages after one of them."""
    context: Any = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    store = context.statusStore()
    defaults = [getattr(store, f"stageList$default${number}")() for number in range(2, 6)]
    stages = store.stageList(None, *defaults)
    new = [each for each in map(stages.apply, range(stages.size())) if each.stageId() > since]
    return Cost(
        max((each.stageId() for each in new), default=since),
        sum(each.inputRecords() for each in new),
        sum(each.executorCpuTime() for each in new),
    )
