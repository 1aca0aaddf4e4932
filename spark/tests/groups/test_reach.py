import json
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from streamtable_spark.jobs.job_args import ended
from streamtable_spark.jobs.reach import WAYS, compare, main
from streamtable_spark.transforms.reach import exact, sketched

pytestmark = pytest.mark.timeout(600)


def test_each_way_is_timed_by_itself_and_held_against_the_exact_numbers(spark: SparkSession) -> None:
    random = Random(3)
    follows = {(f"a{random.randrange(20)}", f"f{random.randrange(9000)}") for _ in range(20_000)}
    tweets = {(f"a{random.randrange(20)}", f"/{random.randrange(8)}") for _ in range(40)} | {("-", "/alone")}
    tweeted = spark.createDataFrame(sorted(tweets), "author string, url string")
    followers = spark.createDataFrame(sorted(follows), "author string, follower string")
    reaches = {
        url: len({who for author, who in follows if (author, url) in tweets})
        for url in {url for _, url in tweets}
    }
    begun: list[str] = []
    ticks = iter(range(100))
    ways = compare(tweeted, followers, lambda: float(next(ticks)), begun.append)
    assert [way.name for way in ways] == begun == list(WAYS)
    assert {(way.urls, way.seconds) for way in ways} == {(len(reaches), 1.0)}
    assert (ways[0].reach, ways[0].mean_error, ways[0].worst_error) == (sum(reaches.values()), 0, 0)
    for way in ways[1:]:
        estimates = sketched(tweeted, followers, kinds=(way.name,)).collect()
        errors = [
            abs(row[way.name] - reaches[row["url"]]) / reaches[row["url"]]
            for row in estimates
            if row["url"] != "/alone"
        ]
        assert way.mean_error == pytest.approx(sum(errors) / len(errors))
        assert way.worst_error == pytest.approx(max(errors))
        assert 0 < max(errors) < 0.08
    assert {row["url"]: row["reach"] for row in exact(tweeted, followers).collect()} == reaches


def test_a_folder_without_a_lake_or_without_tweets_is_refused_in_one_line(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("streamtable_spark.jobs.job_args.connect", lambda *_: spark)
    lake = tmp_path / "lake"
    assert ended(main, ["--lake", str(lake), "--metrics-dir", str(tmp_path)]) == 2
    assert 'streamtable_job_failed{group="",job_name="reach"} 1.0' in (tmp_path / "reach.prom").read_text()
    assert "there is no lake at" in capsys.readouterr().err.splitlines()[-1]
    lake.mkdir()
    (lake / "origin.json").write_text(json.dumps({"lake": "l", "format": "parquet", "topics": {}}))
    assert ended(main, ["--lake", str(lake)]) == 2
    assert (
        "has nothing of tweets: run the ETL with --graph streamtable_spark.demo:LAKE"
        in capsys.readouterr().err.splitlines()[-1]
    )
