"""Changes of topics, and their effects on the lake. The tests of a lake build on each other."""

import io
import json
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession
from spark.tests.lake.runs import Runs
from spark.tests.lake.stage import PARTITIONS, Stage

from localkafka.topics import create_topics
from streamtable import Avro
from streamtable_spark.demo import CLICKS
from streamtable_spark.errors import ConfigurationError, InputLost, OtherLake
from streamtable_spark.jobs import backfill
from streamtable_spark.jobs.backfill import DateRange
from streamtable_spark.jobs.checkpoint import last_finished, read_so_far
from streamtable_spark.jobs.cluster import Cluster
from streamtable_spark.jobs.files import Files
from streamtable_spark.jobs.lake import Lake
from streamtable_spark.jobs.progress import Progress
from streamtable_spark.jobs.topics import Topic
from streamtable_spark.transforms.avro import AvroCodec

pytestmark = [
    pytest.mark.faults_long,
    pytest.mark.timeout(300),
]  # minutes in all, each with topics of its own

HOUR_MS = 3_600_000
# Records with timestamps older than an hour are compacted at once, and later ones not at all.
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "min.compaction.lag.ms": str(HOUR_MS),
    "segment.ms": str(HOUR_MS // 2),
}


def schema(at: str, *more: Mapping[str, Any]) -> str:
    fields = [{"name": name, "type": "string"} for name in ("id", "user_id", "url")]
    whole = [*fields, {"name": "at", "type": at}, *more]
    return json.dumps({"type": "record", "name": "Click", "fields": whole})


V1, V2 = schema("int"), schema("long")
V3 = schema("long", {"name": "referrer", "type": ["null", "string"], "default": None})
POISON = {
    "cut short, or malformed": Avro(V2).encode({"id": "x", "user_id": "u", "url": "/", "at": 1})[:-1],
    "shorter than the 10 bytes in front of a body": b"junk",
    "no value": None,
}


class Clicks:
    """A compacted topic of clicks that writers of three versions have sent.

    Attributes:
        sent: Each readable click that compaction keeps, by its id, as it was written.
    """

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage, self.name = stage, name
        self.sent: dict[str, dict[str, Any]] = {}
        new = NewTopic(name, PARTITIONS, config=COMPACTED)
        create_topics(stage.admin, [new])
        self._producer = Producer(
            {"enable.idempotence": True, "bootstrap.servers": stage.servers, "log_level": 0}
        )

    def topic(self, *versions: str) -> Topic:
        """The topic for a job that was released with these versions."""
        return Topic(CLICKS, self.name, AvroCodec(versions[-1], versions), id="id")

    def send(self, version: str, ids: range, partition: int, age_ms: int = 0, **more: Any) -> None:
        codec, then = Avro(version), int(time.time() * 1000) - age_ms
        for number in ids:
            click = {"id": f"id-{number}", "user_id": f"user-{number % 5}", "url": "/", "at": number, **more}
            self.sent[click["id"]] = click
            self.produce(click["user_id"].encode(), codec.encode(click), partition, then)
        assert self._producer.flush(60) == 0

    def produce(self, key: bytes, value: bytes | None, partition: int, timestamp: int = 0) -> None:
        self._producer.produce(self.name, value, key, partition, timestamp=timestamp)

    def poison(self) -> None:
        for value in POISON.values():
            self.produce(b"user-1", value, 1)
        assert self._producer.flush(60) == 0


@pytest.fixture(scope="module")
def sent(stage: Stage) -> Iterator[Clicks]:
    """20 old clicks of 5 users (compaction keeps 5), then some of each version, and poison."""
    made = Clicks(stage, f"{stage.clicks}-compacted")
    made.send(V1, range(20), 0, age_ms=2 * HOUR_MS)
    made.send(V1, range(20, 22), 0)
    for number in range(15):
        del made.sent[f"id-{number}"]
    stage.wait(lambda: len(stage.committed(made.name)) == len(made.sent))
    made.send(V2, range(30, 36), 1)
    made.send(V3, range(40, 44), 2, referrer="mail")
    made.poison()
    yield made
    stage.delete(made.name)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, sent: Clicks, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """A lake by a job that was released before the third version."""
    made = Runs(spark, sent.stage, tmp_path_factory.mktemp("inputs") / "lake", [sent.topic(V1, V2)])
    made.run(batch=20)
    return made


def assert_silver_is(runs: Runs, clicks: Mapping[str, Mapping[str, Any]], columns: list[str]) -> None:
    rows = [row["event"] for row in runs.rows("silver/user-clicks", "event")]
    assert {row["id"]: row for row in rows} == {
        name: {column: click.get(column) for column in columns} for name, click in clicks.items()
    }
    assert len(rows) == len(clicks)


def reasons(runs: Runs) -> list[str]:
    return sorted(row["reason"] for row in runs.rows("quarantine", "reason"))


def test_of_a_compacted_topic_the_lake_has_what_is_left_between_the_holes(lake: Runs, sent: Clicks) -> None:
    there = set(sent.stage.committed(sent.name))
    assert {(row["partition"], row["offset"]) for row in lake.rows("bronze", "partition", "offset")} == there
    assert len([place for place in there if place[0] == 0]) == 7
    assert max(offset for partition, offset in there if partition == 0) == 21


def test_two_versions_are_read_as_the_present_one_and_what_cannot_be_read_is_kept_with_the_reason(
    lake: Runs, sent: Clicks
) -> None:
    known = {name: click for name, click in sent.sent.items() if "referrer" not in click}
    assert_silver_is(lake, known, ["id", "user_id", "url", "at"])
    unknown = [reason for reason in reasons(lake) if reason.startswith("schema not known: C301")]
    assert len(unknown) == 4
    assert reasons(lake) == sorted([*POISON, *unknown])
    kept = {bytes(row["value"] or b"") for row in lake.rows("quarantine", "value")}
    assert {value or b"" for value in POISON.values()} <= kept


def test_a_table_takes_a_field_that_a_third_version_adds_and_recomputed_days_have_it_too(
    lake: Runs, sent: Clicks
) -> None:
    before = lake.table("silver/user-clicks").count()
    released = Runs(lake.spark, sent.stage, lake.folder, [sent.topic(V1, V2, V3)])
    sent.send(V3, range(50, 53), 2, referrer="search")
    released.run()
    columns = ["id", "user_id", "url", "at", "referrer"]
    assert released.table("silver/user-clicks").count() == before + 3
    quarantined = {name for name, click in sent.sent.items() if click.get("referrer") == "mail"}
    known = {name: click for name, click in sent.sent.items() if name not in quarantined}
    assert_silver_is(released, known, columns)

    today = datetime.now(UTC).date()
    backfill.backfill(
        Lake(lake.spark, str(lake.folder)),
        released.contents,
        DateRange(today - timedelta(1), today + timedelta(1)),
        Progress(backfill.STAGES, io.StringIO(), time.monotonic),
    )
    assert_silver_is(released, sent.sent, columns)
    assert reasons(released) == sorted(POISON)


@pytest.fixture(scope="module")
def plain(spark: SparkSession, stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """A lake that has all of the first records, in three batches at least."""
    stage.send(160)
    made = Runs(spark, stage, tmp_path_factory.mktemp("inputs") / "plain", format="parquet")
    assert made.run(batch=80)["batches"] >= 3
    return made


def next_offsets(runs: Runs) -> dict[int, int]:
    """The next offsets to read in the topic of clicks."""
    read = read_so_far(Files(runs.spark), f"{runs.folder}/checkpoint")
    assert read is not None
    return read[runs.stage.clicks]


def test_records_that_retention_takes_before_they_are_read_stop_the_job_with_their_numbers(
    plain: Runs, stage: Stage
) -> None:
    stage.send(80)
    read = next_offsets(plain)
    places = [TopicPartition(stage.clicks, number, OFFSET_END) for number in range(PARTITIONS)]
    for deleted in stage.admin.delete_records(places).values():
        deleted.result(60)
    with Cluster(stage.servers) as cluster:
        starts = cluster.starts({stage.clicks: PARTITIONS})[stage.clicks]
    gone = {number: start - read[number] for number, start in starts.items() if start > read[number]}
    first = min(gone)
    said = rf"^{sum(gone.values())} offsets were .* {stage.clicks}\[{first}\] offsets {read[first]} to {starts[first] - 1} "
    with pytest.raises(InputLost, match=said):
        plain.run()
    assert plain.run(allow=True).get(CLICKS, 0) == 0
    assert {
        (row["partition"], row["offset"]) for row in plain.rows("silver/user-status-updates", "*")
    } == set(stage.committed(stage.updates)), "the remaining records of other topics are read"
    stage.send(80)
    assert plain.run()[CLICKS] == len(stage.readable(stage.clicks)), "and what comes later"


def test_a_checkpoint_from_before_the_last_batches_is_refused(plain: Runs, tmp_path: Path) -> None:
    folder = plain.folder / "checkpoint/commits"
    last = last_finished(Files(plain.spark), f"{plain.folder}/checkpoint")
    later = [folder / str(number) for number in (last, last - 1)]
    for file in later:
        file.rename(tmp_path / file.name)
    with pytest.raises(OtherLake, match=f"ends with batch {last - 2}, and they hold batch"):
        plain.run()
    for file in later:
        (tmp_path / file.name).rename(file)


def test_a_topic_that_was_deleted_or_created_again_stops_the_job_with_how_much_was_read_of_the_earlier_one(
    plain: Runs, stage: Stage
) -> None:
    read = sum(next_offsets(plain).values())
    stage.delete(stage.clicks)
    stage.wait(lambda: stage.clicks not in stage.admin.list_topics(timeout=60).topics)
    with pytest.raises(ConfigurationError, match=f"no topic '{stage.clicks}'"):
        plain.run()
    stage.create(stage.clicks)
    with pytest.raises(
        InputLost, match=rf"was deleted and created again: .* {read} offsets of the earlier one"
    ):
        plain.run(allow=True)
