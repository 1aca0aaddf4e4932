from datetime import UTC, datetime
from random import Random

from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from streamtable_spark.transforms import reach
from tweet_reach.example_data import FOLLOWED_BY, REACHES, TWEETED_BY

FOLLOWS = "timestamp timestamp, event struct<author: string, follower: string, follows: boolean, at: long>"
CLOCK = datetime(2026, 1, 1, tzinfo=UTC)
CLOCK_MS = round(CLOCK.timestamp() * 1000)
TWEETS = "timestamp timestamp, event struct<id: string, author: string, url: string, at: long>, partition int, offset long"


def test_the_latest_of_an_author_and_a_follower_counts_in_whatever_order_they_come(
    spark: SparkSession,
) -> None:
    rows = [
        (("a", "x", False, 5),),
        (("a", "x", True, 9),),
        (("a", "y", False, 7),),
        (("a", "y", True, 6),),
        (("a", "z", False, 3),),
        (("a", "z", True, 3),),
        (("a", "z", False, CLOCK_MS + 300_001),),
        (("a", "z", False, -1),),
    ]
    assertDataFrameEqual(
        reach.followers(spark.createDataFrame([(CLOCK, *row) for row in rows], FOLLOWS)),
        spark.createDataFrame([("a", "x"), ("a", "z")], "author string, follower string"),
    )


def test_a_deleted_tweet_does_not_come_back(spark: SparkSession) -> None:
    rows = [
        (("1", "a", "/x", 1), 0, 0),
        (("1", "a", None, 2), 0, 1),
        (("1", "a", "/x", 3), 0, 2),
        (("2", "a", "/y", 1), 0, 3),
        (("3", "a", "/y", 1), 0, 4),
        (("1", "b", "/x", 1), 0, 5),
        (("2", "b", "/from-the-future", CLOCK_MS + 300_001), 0, 6),
    ]
    assertDataFrameEqual(
        reach.tweeted(spark.createDataFrame([(CLOCK, *row) for row in rows], TWEETS)),
        spark.createDataFrame([("a", "/y"), ("b", "/x")], "author string, url string"),
    )


def test_the_known_answers_come_out(spark: SparkSession) -> None:
    tweeted = [(author, url) for url, authors in TWEETED_BY.items() for author in authors]
    followed = [(author, follower) for author, names in FOLLOWED_BY.items() for follower in names]
    found = reach.exact(
        spark.createDataFrame(tweeted, "author string, url string"),
        spark.createDataFrame(followed, "author string, follower string"),
    )
    known = [(url, number) for url, number in REACHES.items() if url in TWEETED_BY]
    assertDataFrameEqual(found, spark.createDataFrame(known, "url string, reach long"))


def test_reach_is_exact_and_the_sketches_are_near_it(spark: SparkSession) -> None:
    random = Random(5)
    follows = {(f"a{random.randrange(30)}", f"f{random.randrange(3000)}") for _ in range(9_000)}
    tweets = {(f"a{random.randrange(32)}", f"/{random.randrange(12)}") for _ in range(80)} | {
        ("nobody", "/alone")
    }
    expected = {
        url: len({who for author, who in follows if (author, url) in tweets})
        for url in {url for _, url in tweets}
    }
    found = reach.compared(
        spark.createDataFrame(sorted(tweets), "author string, url string"),
        spark.createDataFrame(sorted(follows), "author string, follower string"),
    ).collect()
    assert {row["url"]: row["reach"] for row in found} == expected
    for row in found:
        if row["reach"] == 0:
            assert (row["hll"], row["theta"], row["hll_error"]) == (0, 0, None)
        else:
            assert abs(row["hll_error"]) < 0.08
            assert abs(row["theta_error"]) < 0.08
            assert abs(row["hll_error"] - (row["hll"] - row["reach"]) / row["reach"]) < 1e-9
