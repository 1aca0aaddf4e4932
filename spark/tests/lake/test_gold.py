"""Results from silver as the ETL writes it, batch by batch; from Kafka they are tested in `test_etl` and `test_parquet`."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from streamtable_spark.demo import CLICKS, FOLLOWS, LAKE, TWEETS
from streamtable_spark.jobs import gold
from streamtable_spark.jobs.formats import DeltaTables, ParquetTables
from streamtable_spark.jobs.topics import Result
from tweet_reach.example_data import FOLLOWED_BY, REACHES, TWEETED_BY

PLACE = "partition int, offset long, timestamp timestamp, key string"
KEPT = "repeat boolean, day date, batch long"
EVENTS = {
    CLICKS: "id string, user_id string, url string, at long",
    TWEETS: "id string, author string, url string, text string, at long",
    FOLLOWS: "id string, author string, follower string, follows boolean, at long",
}
DAY_MS = 86_400_000


class Silver:
    """A lake into which a test puts events as if they were decoded."""

    def __init__(self, spark: SparkSession, tables: DeltaTables | ParquetTables) -> None:
        self._spark, self.tables, self._offset = spark, tables, 0

    def append(self, topic: str, batch: int, events: list[tuple[Any, ...]]) -> None:
        """The second field of an event is its key."""
        schema = f"{PLACE}, event struct<{EVENTS[topic]}>, {KEPT}"
        rows = []
        for event in events:
            self._offset += 1
            rows.append((0, self._offset, datetime.now(UTC), event[1], event, False, None, batch))
        frame = self._spark.createDataFrame(rows, schema).coalesce(1)
        self.tables.append(f"silver/{topic}", frame, batch)

    def refresh(self) -> list[str]:
        return gold.refresh(self.tables, LAKE.results)

    def reaches(self) -> dict[str, int]:
        rows = self.tables.read("gold/reach").collect()
        assert len(rows) == len({row["url"] for row in rows})
        for row in rows:
            assert row["hll"] == row["theta"] == row["reach"], "sketches of so few are exact"
        return {row["url"]: row["reach"] for row in rows}

    def clicks(self) -> list[tuple[str, int, int]]:
        rows = self.tables.read("gold/clicks_per_day").collect()
        return sorted((row["user_id"], row["day"].day, row["clicks"]) for row in rows)


@pytest.fixture
def delta(spark: SparkSession, tmp_path: Path) -> Silver:
    return Silver(spark, DeltaTables(spark, str(tmp_path), "one"))


@pytest.fixture
def parquet(spark: SparkSession, tmp_path: Path) -> Silver:
    return Silver(spark, ParquetTables(spark, str(tmp_path)))


def test_the_reach_of_each_url_follows_tweets_and_follows_and_goes_when_its_tweets_are_deleted(
    parquet: Silver,
) -> None:
    tweets = [
        (f"{url}-{author}", author, url, "", 1) for url, authors in TWEETED_BY.items() for author in authors
    ]
    follows = [
        (f"{author}-{follower}", author, follower, True, 1)
        for author, followers in FOLLOWED_BY.items()
        for follower in followers
    ]
    parquet.append(TWEETS, 0, tweets)
    assert parquet.refresh() == [], "there are no followers yet"
    parquet.append(FOLLOWS, 1, follows)
    assert parquet.refresh() == ["reach"]
    assert parquet.reaches() == {url: REACHES[url] for url in TWEETED_BY}
    assert parquet.refresh() == [], "nothing has come since"
    url = "engineering.twitter.com/blog/5"
    parquet.append(TWEETS, 2, [(f"{url}-{author}", author, None, "", 2) for author in TWEETED_BY[url]])
    assert parquet.refresh() == ["reach"]
    assert parquet.reaches() == {left: REACHES[left] for left in TWEETED_BY if left != url}


def test_only_rows_of_users_with_new_records_are_merged_and_a_repetition_changes_nothing(
    delta: Silver,
) -> None:
    delta.append(CLICKS, 0, [("1", "ann", "/", 0), ("2", "bob", "/", 0), ("3", "ann", "/", DAY_MS)])
    assert delta.refresh() == ["clicks_per_day"]
    delta.append(CLICKS, 1, [("4", "ann", "/", 0), ("5", "cid", "/", 0)])
    assert delta.refresh() == ["clicks_per_day"]
    right = [("ann", 1, 2), ("ann", 2, 1), ("bob", 1, 1), ("cid", 1, 1)]
    assert delta.clicks() == right
    rows = delta.tables.read("gold/clicks_per_day")
    assert {row["user_id"]: row["batch"] for row in rows.collect()} == {"ann": 1, "bob": 0, "cid": 1}
    assert isinstance(delta.tables, DeltaTables)
    delta.tables.upsert("gold/clicks_per_day", rows, LAKE.results["clicks_per_day"].keys, rows)
    assert delta.clicks() == right
    assert delta.refresh() == []


def test_a_recomputed_result_waits_for_the_batch_that_not_all_of_its_tables_have(delta: Silver) -> None:
    delta.append(TWEETS, 0, [("1", "ann", "/a", "", 1)])
    delta.append(FOLLOWS, 0, [("1", "ann", "bob", True, 1)])
    delta.append(TWEETS, 1, [("2", "cid", "/b", "", 1)])  # here the ETL was killed
    assert gold.refresh(delta.tables, LAKE.results, upto=0) == ["reach"]
    assert delta.reaches() == {"/a": 1}
    delta.append(FOLLOWS, 1, [("2", "ann", "dan", True, 1)])
    assert delta.refresh() == ["reach"]
    assert delta.reaches()["/a"] == 2


@pytest.mark.parametrize("adds", [True, False])
def test_records_without_a_key_are_one_row_that_later_ones_are_added_to(delta: Silver, *, adds: bool) -> None:
    def counted(rows: DataFrame) -> DataFrame:
        return rows.groupBy("key").agg(fn.sum("clicks").alias("clicks"))

    def make(silver: DataFrame) -> DataFrame:
        return counted(silver.select("key", fn.lit(1).alias("clicks")))

    def add(kept: DataFrame, new: DataFrame) -> DataFrame:
        return counted(kept.select("key", "clicks").unionByName(make(new)))

    results = {"by_key": Result((CLICKS,), make, keys=("key",), add=add if adds else None)}
    batches: list[list[str | None]] = [[None, None, "ann"], [None]]
    for batch, keys in enumerate(batches):
        delta.append(CLICKS, batch, [(f"{batch}-{at}", key, "/", 0) for at, key in enumerate(keys)])
        assert gold.refresh(delta.tables, results) == ["by_key"]
    rows = delta.tables.read("gold/by_key").collect()
    assert {row["key"]: row["clicks"] for row in rows} == {None: 3, "ann": 1}


@pytest.mark.parametrize("adds", [True, False])
def test_a_row_that_the_records_of_its_key_do_not_make_any_more_goes(delta: Silver, *, adds: bool) -> None:
    def last(rows: DataFrame) -> DataFrame:
        found = rows.groupBy("key").agg(fn.max_by("url", "at").alias("url"), fn.max("at").alias("at"))
        return found.where("url != '/closed'")

    def make(silver: DataFrame) -> DataFrame:
        return last(silver.select("key", "event.url", "event.at"))

    def add(kept: DataFrame, new: DataFrame) -> DataFrame:
        return last(kept.select("key", "url", "at").unionByName(new.select("key", "event.url", "event.at")))

    results = {"open": Result((CLICKS,), make, keys=("key",), add=add if adds else None)}
    steps: list[tuple[str, str, dict[str, int]]] = [
        ("ann", "/new", {"ann": 0}), ("bob", "/new", {"ann": 0, "bob": 1}), ("ann", "/closed", {"bob": 2}),
        ("ann", "/again", {"bob": 2, "ann": 3}),
    ]  # fmt: skip
    for batch, (key, url, expected) in enumerate(steps):
        delta.append(CLICKS, batch, [(f"{batch}", key, url, batch)])
        assert gold.refresh(delta.tables, results) == ["open"]
        found = delta.tables.read("gold/open").collect()
        assert {row["key"]: row["batch"] for row in found} == expected
        assert gold.refresh(delta.tables, results) == []


def test_batches_that_make_no_row_are_read_with_the_next_one(delta: Silver) -> None:
    def counted(silver: DataFrame) -> DataFrame:
        return silver.where("event.url = '/counted'").groupBy("key").agg(fn.count("*").alias("n"))

    def add(kept: DataFrame, new: DataFrame) -> DataFrame:
        return kept.select("key", "n").unionByName(counted(new)).groupBy("key").agg(fn.sum("n").alias("n"))

    results = {"counted": Result((CLICKS,), counted, keys=("key",), add=add)}
    steps = [
        ("ann", "/counted", ["counted"], {"ann": 1}),
        ("bob", "/other", [], {"ann": 1}),
        ("bob", "/other", [], {"ann": 1}),
        ("bob", "/counted", ["counted"], {"ann": 1, "bob": 1}),
        ("ann", "/counted", ["counted"], {"ann": 2, "bob": 1}),
    ]
    for batch, (key, url, written, expected) in enumerate(steps):
        delta.append(CLICKS, batch, [(f"{batch}", key, url, batch)])
        assert gold.refresh(delta.tables, results) == written
        assert {row["key"]: row["n"] for row in delta.tables.read("gold/counted").collect()} == expected


def test_a_result_with_other_columns_or_types_than_its_table_is_made_as_a_whole(delta: Silver) -> None:
    def counted(kind: str, *more: str) -> dict[str, Result]:
        def make(silver: DataFrame) -> DataFrame:
            at = fn.max(fn.col("event.at").cast(kind)).alias("at")
            return silver.groupBy("key").agg(at, *[fn.count("*").alias(name) for name in more])

        return {"last": Result((CLICKS,), make, keys=("key",))}

    steps = [(counted("int"), 1), (counted("int", "n"), 2), (counted("long", "n"), 2**40)]
    for batch, (results, at) in enumerate(steps):
        delta.append(CLICKS, batch, [(f"{batch}", f"{batch}", "/", at)])
        assert gold.refresh(delta.tables, results) == ["last"]
    rows = delta.tables.read("gold/last").collect()
    assert {row["key"]: (row["at"], row["n"]) for row in rows} == {"0": (1, 1), "1": (2, 1), "2": (2**40, 1)}
