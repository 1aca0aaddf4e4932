import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from spark.tests.lake.stage import Stage

from contracts.records import FOLLOW, TWEET, Follow, Tweet
from localkafka.broker import Broker
from streamtable import Avro
from streamtable_spark.demo import FOLLOWS, TWEETS
from tweet_reach.example_data import FOLLOWED_BY, TWEETED_BY


@pytest.fixture(scope="module")
def stage(broker: Broker) -> Iterator[Stage]:
    made = Stage(broker.bootstrap_servers)
    yield made
    made.delete(made.clicks, made.updates)


@pytest.fixture(scope="module")
def social(stage: Stage) -> Iterator[list[str]]:
    """Topics of tweets and follows whose reaches are known, as the jobs' `--topics` arguments."""
    topics = {name: f"{stage.clicks}-{name}" for name in (TWEETS, FOLLOWS)}
    stage.create(*topics.values())
    producer = Producer({"enable.idempotence": True, "bootstrap.servers": stage.servers, "log_level": 0})
    tweets, follows = Avro(TWEET), Avro(FOLLOW)
    for url, authors in TWEETED_BY.items():
        for author in authors:
            tweet = Tweet(id=str(uuid.uuid5(uuid.NAMESPACE_URL, url)), author=author, url=url, text="", at=1)
            producer.produce(topics[TWEETS], tweets.encode(tweet), author)
    for author, followers in FOLLOWED_BY.items():
        for follower in followers:
            follow = Follow(id=f"{author}-{follower}", author=author, follower=follower, follows=True, at=1)
            producer.produce(topics[FOLLOWS], follows.encode(follow), author)
    assert producer.flush(60) == 0
    yield [f"{name}={kafka}" for name, kafka in topics.items()]
    stage.delete(*topics.values())
