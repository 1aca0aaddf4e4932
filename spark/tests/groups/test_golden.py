"""Stream and batch have equal results: the services' own processors over random events, and Spark up to their offsets.

Some events are aborted, unreadable, invalid or late, or have the same ids.
"""

import re
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from spark.tests.groups.jobs import Jobs, source

from contracts.records import (
    FOLLOW,
    REACH,
    TWEET,
    USER_STATUS_UPDATE,
    Follow,
    Tweet,
    UserStatusUpdate,
)
from contracts.schema import RecordSchema
from streamtable import Avro
from streamtable_spark.jobs.cluster import Cluster
from streamtable_spark.jobs.history import read
from streamtable_spark.jobs.positions import Span
from streamtable_spark.transforms import reach
from streamtable_spark.transforms.applied import applied, letters
from streamtable_spark.transforms.avro import AvroCodec
from streamtable_spark.transforms.changelog import rows_held
from streamtable_spark.transforms.tables import GroupTable, events

pytestmark = pytest.mark.timeout(600)
UPDATES, TWEETS, FOLLOWS = Avro(USER_STATUS_UPDATE), Avro(TWEET), Avro(FOLLOW)
PAGE: Final = Path(__file__).parents[3] / "docs/explanation/spark.md"
POISON: Final = (b"", b"junk", b"\xc3\x01" + bytes(12))


def send(stage: Any, random: Random, some: list[tuple[str, bytes, bytes]]) -> None:
    """Send records to topics in several transactions, some aborted, with poison between them."""
    while some:
        now, some = some[:40], some[40:]
        with stage.transaction(committed=random.random() < 0.8) as producer:
            for topic, key, value in now:
                producer.produce(topic, value, key)
                _perhaps_poison(producer, random, topic, key)


def _perhaps_poison(producer: Producer, random: Random, topic: str, key: bytes) -> None:
    if random.random() < 0.03:
        producer.produce(topic, random.choice([*POISON, None]), random.choice([key, b"\xff", None]))


def status(random: Random, user: str) -> tuple[str, bytes, bytes]:
    update = UserStatusUpdate(
        id=random.choice(["x", "y", "ü", "\U0001f600"]),
        user_id=user,
        status=random.choice("pqr"),
        at=random.randrange(50),
    )
    return "user-status-updates", user.encode(), UPDATES.encode(update)


def test_counts_and_statuses_with_the_clicks_of_their_moment_are_byte_for_byte_those_of_the_processors(
    jobs: Jobs, stage: Any
) -> None:
    """The group of statuses works when all clicks before are counted: "at that time" means the same to both then."""
    random = Random(17)
    users = [f"user-{number}" for number in range(40)]
    stage.create("user-status-updates", "user-status-changes")
    stage.group("user-status")
    stage.processor("click-count")
    for part in (users, users[:25]):
        clicks = [stage.click(random.choice(users)) for _ in range(300)]
        send(stage, random, [("user-clicks", key, value) for key, value in clicks])
        stage.wait_handled("click-count", "user-clicks")
        send(stage, random, [status(random, random.choice(part)) for _ in range(200)])
        process = stage.processor("user-status", "user_status")
        stage.wait_handled("user-status", "user-status-updates")
        process.process.send_signal(signal.SIGTERM)
        assert process.process.wait(60) == 0

    for name in ("click-count", "user-status"):
        group = source(name)
        assert isinstance(group.computes, GroupTable)
        report = jobs.audit(replace(group, computes=replace(group.computes, fields=())))
        assert report.keys == []
        assert [each.live_digest for each in report.partitions] == [
            each.expected_digest for each in report.partitions
        ]
        assert sum(each.live_rows for each in report.partitions) == 40
        assert report.unfit == 0, "what cannot be read is among the dead letters"
        assert len(stage.records(f"{name}-dead-letters")) > 3


def reach_events(random: Random) -> list[tuple[str, bytes, bytes]]:
    """Events of ten authors, 300 followers and eight URLs. Ids of tweets are used again, and times go back and forth."""
    found = []
    for _ in range(1_200):
        author = f"author-{random.randrange(10)}"
        if random.random() < 0.2:
            url = random.choice([None, "", *(f"https://example.org/{number}" for number in range(8))])
            tweet = Tweet(
                id=f"{random.randrange(30)}", author=author, url=url, text="ü", at=random.randrange(9)
            )
            found.append(("tweets", author.encode(), TWEETS.encode(tweet)))
        else:
            follower = random.choice(["", *(f"user-{number}" for number in range(300))])
            yes, at = random.random() < 0.8, random.randrange(9)
            follow = Follow(id="", author=author, follower=follower, follows=yes, at=at)
            key = author if random.random() < 0.98 else "somebody"
            found.append(("twitter-followers", key.encode(), FOLLOWS.encode(follow)))
    return found


def records_handled(
    spark: SparkSession, servers: str, group: str, schemas: Mapping[str, RecordSchema[Any]]
) -> list[DataFrame]:
    """The events of each topic that a group has handled, up to the offsets that it has committed."""
    with Cluster(servers) as cluster:
        topics = dict.fromkeys([*schemas, f"{group}-retry"], 3)
        committed = cluster.committed(group, topics)
        ends = cluster.ends({f"{group}-dead-letters": 3})
    spans: dict[str, dict[int, Span]] = {topic: {} for topic in topics}
    for place, each in committed.items():
        spans[place.topic][place.partition] = Span(0, each.next_offset if each else 0)
    dead = {topic: {number: Span(0, end) for number, end in parts.items()} for topic, parts in ends.items()}
    until = {f"{topic}[{n}]": span.end for topic, parts in spans.items() for n, span in parts.items()}
    set_aside = letters(read(spark, servers, dead), {f"{group}-dead-letters": until})
    retries, records = {f"{group}-retry": until}, read(spark, servers, spans)
    counted = applied(records, retries, list(schemas), set_aside).persist()
    return [
        events(counted.where(counted["input"] == topic), AvroCodec.released(schema)).where(
            "event IS NOT NULL"
        )
        for topic, schema in schemas.items()
    ]


@pytest.mark.faults_long(
    "the services themselves compute; test_demo_replays.py and test_reach.py hold Spark against the stages"
)
def test_the_reach_of_every_url_is_that_of_the_micro_batches_and_their_sketches_merge_with_those_of_spark(
    spark: SparkSession, stage: Any
) -> None:
    stage.create(
        "tweets", "twitter-followers", "tweet-reach-facts", "tweet-reach-work", "tweet-reach-rebuilds"
    )
    stage.create("tweet-reach-table", "tweet-reach-authors-table", "tweet-reach-urls-table", compacted=True)
    for group in ("tweet-reach-authors", "tweet-reach-urls"):
        stage.create(f"{group}-dead-letters", f"{group}-retry")
        stage.processor(
            "tweet-reach", "tweet_reach", "--stage", group.rpartition("-")[2],
            STREAMTABLE_INSTANCE_ID=group, TWEET_REACH_BATCH_SECONDS="0.2",
        )  # fmt: skip
    random = Random(23)
    send(stage, random, reach_events(random))
    stage.wait_handled("tweet-reach-authors", "tweets", "twitter-followers", "tweet-reach-work")
    stage.wait_handled("tweet-reach-urls", "tweet-reach-facts", "tweet-reach-rebuilds")

    tweets, follows = records_handled(
        spark, stage.servers, "tweet-reach-authors", {"tweets": TWEET, "twitter-followers": FOLLOW}
    )
    tweeted, followers = reach.tweeted(tweets), reach.followers(follows)
    authors = tweeted.groupBy("url").agg(fn.count("*").alias("authors"))
    batch = {
        row["url"]: (row["reach"], row["authors"])
        for row in reach.exact(tweeted, followers).join(authors, "url").collect()
    }
    table = stage.table("tweet-reach", Avro(REACH))
    assert {url.decode(): (row["reach"], row["authors"]) for url, row in table.items()} == batch
    assert len(batch) == 8
    assert len(stage.records("tweet-reach-authors-dead-letters")) > 10

    # The sketch in the bytes of the table and Spark's sketch are the same set when merged.
    rows = spark.createDataFrame(
        [
            (0, offset, key, value)
            for offset, (_, key, value) in enumerate(stage.records("tweet-reach-table"))
        ],
        "partition int, offset long, key binary, value binary",
    )
    streamed = (
        AvroCodec.released(REACH)
        .decode(rows_held(rows))
        .select(fn.col("key").cast("string").alias("url"), fn.col("decoded")["sketch"].alias("sketch"))
    )
    brought = tweeted.join(followers, "author")
    sketched = brought.groupBy("url").agg(fn.hll_sketch_agg("follower").alias("sketch"))
    both = streamed.unionByName(sketched)
    merged = fn.hll_sketch_estimate(fn.hll_union_agg("sketch")).alias("estimate")
    for row in both.groupBy("url").agg(merged).collect():
        assert row["estimate"] == pytest.approx(batch[row["url"]][0], abs=3)
    people = brought.select("follower").distinct().count()
    names: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[-1], names)
    assert names["together"](streamed).collect()[0]["people"] == pytest.approx(people, rel=0.02)
    assert people < sum(reached for reached, _ in batch.values()) / 2
