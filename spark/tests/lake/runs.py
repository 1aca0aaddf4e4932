"""Runs of the ETL on one lake, and the invariants of the lake after them."""

import io
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from spark.tests.lake.stage import UPDATE, Stage

from streamtable_spark.demo import LAKE
from streamtable_spark.jobs import etl, maintain
from streamtable_spark.jobs.formats import DeltaTables, ParquetTables, Reached
from streamtable_spark.jobs.lake import Lake
from streamtable_spark.jobs.progress import Progress
from streamtable_spark.jobs.topics import Contents, Topic, topics_of
from tweet_reach.example_data import REACHES, TWEETED_BY


class Crashed(Exception):
    pass


ENDS = (Crashed, StreamingQueryException)
"""The errors of a run that has crashed: within a batch Spark wraps the error."""


def crash_at(step: str) -> Reached:
    def reached(name: str) -> None:
        if name == step:
            raise Crashed

    return reached


class Runs:
    """One lake that grows from run to run.

    Attributes:
        contents: The topics and results of the lake.
    """

    def __init__(
        self,
        spark: SparkSession,
        stage: Stage,
        folder: Path,
        topics: Sequence[Topic] | None = None,
        format: str = "delta",  # noqa: A002 - as the setting
        contents: Contents | None = None,
    ) -> None:
        self.spark, self.stage, self.folder, self._format = spark, stage, folder, format
        found = topics_of(stage.arguments, LAKE.topics) if topics is None else tuple(topics)
        self.contents = contents or Contents(found, LAKE.results)

    def run(
        self, *, batch: int = 400, allow: bool = False, reached: Reached = lambda _: None
    ) -> dict[str, int]:
        settings = etl.Settings(
            self.stage.servers,
            str(self.folder),
            self.contents,
            format=self._format,
            records_max=batch,
            allow_missing=allow,
        )
        progress = Progress(etl.STAGES, io.StringIO(), time.monotonic)
        return etl.Etl(self.spark, settings, progress, reached).run("lake")

    def maintain(self, **settings: Any) -> dict[str, dict[str, Any]]:
        progress = Progress(maintain.STAGES, io.StringIO(), time.monotonic)
        return maintain.maintain(Lake(self.spark, str(self.folder)), maintain.Settings(**settings), progress)

    @property
    def tables(self) -> DeltaTables | ParquetTables:
        lake = Lake(self.spark, str(self.folder))
        origin = lake.origin()
        assert origin is not None
        return lake.tables(origin)

    def table(self, name: str) -> DataFrame:
        return self.tables.read(name)

    def rows(self, name: str, *columns: str) -> list[dict[str, Any]]:
        return [row.asDict(recursive=True) for row in self.table(name).select(*columns).collect()]


def assert_the_lake_is_what_kafka_has(runs: Runs) -> None:
    """Check that bronze has each committed record once, and that each is either in silver or in quarantine."""
    stage = runs.stage
    raw = runs.rows("bronze", "topic", "partition", "offset", "key", "value")
    for topic in (stage.clicks, stage.updates):
        found = [
            ((row["partition"], row["offset"]), (_bytes(row["key"]), _bytes(row["value"])))
            for row in raw
            if row["topic"] == topic
        ]
        assert len(found) == len(dict(found))
        assert dict(found) == stage.committed(topic)
    good = [
        (row["partition"], row["offset"]) for row in runs.rows("silver/user-clicks", "partition", "offset")
    ]
    assert len(good) == len(set(good))
    assert set(good) == set(stage.readable(stage.clicks))
    bad = [(row["partition"], row["offset"]) for row in runs.rows("quarantine", "partition", "offset")]
    assert len(bad) == len(set(bad))
    assert {*good, *bad} == set(stage.committed(stage.clicks))
    assert not {*good}.intersection(bad)


def assert_gold_is_what_kafka_says(runs: Runs) -> None:
    """Check the clicks of each day, each event once, and the duration of each status."""
    stage = runs.stage
    seen = {event["id"]: event for event in stage.readable(stage.clicks).values()}
    expected = Counter(
        (event["user_id"], datetime.fromtimestamp(event["at"] / 1000, UTC).date()) for event in seen.values()
    )
    rows = runs.rows("gold/clicks_per_day", "user_id", "day", "clicks")
    assert {(row["user_id"], row["day"]): row["clicks"] for row in rows} == expected
    assert len(rows) == len(expected)
    said = sorted(
        (event["user_id"], event["at"], event["id"], event["status"])
        for event in (UPDATE.decode(value) for _, value in stage.committed(stage.updates).values() if value)
    )
    until: dict[tuple[str, int, str, str], int | None] = dict.fromkeys(said)
    for _, of_user in groupby(said, key=lambda status: status[0]):
        until |= {status: later[1] for status, later in pairwise(of_user)}
    lasted = runs.rows("gold/status_history", "user_id", "at", "id", "status", "until")
    found = {(row["user_id"], row["at"], row["id"], row["status"]): row["until"] for row in lasted}
    assert found == until
    assert len(lasted) == len(until)


def assert_reach_is_known(runs: Runs) -> None:
    """Check the reaches in a lake with the topics of `social`; sketches of so few followers are exact."""
    rows = runs.rows("gold/reach", "url", "reach", "hll", "theta", "hll_error")
    assert {row["url"]: row["reach"] for row in rows} == {url: REACHES[url] for url in TWEETED_BY}
    assert len(rows) == len(TWEETED_BY)
    for row in rows:
        assert row["hll"] == row["theta"] == row["reach"]
        assert not row["hll_error"]


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)
