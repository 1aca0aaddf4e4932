"""The contents of the lake of the demo's services: `--graph streamtable_spark.demo:LAKE`."""

from typing import Final

from pyspark.sql import DataFrame

from contracts.records import FOLLOW, TWEET, USER_CLICK, USER_STATUS_CHANGE, USER_STATUS_UPDATE
from streamtable_spark.jobs.topics import Contents, Result, Topic
from streamtable_spark.transforms import clicks, reach, statuses
from streamtable_spark.transforms.avro import AvroCodec

CLICKS: Final = "user-clicks"
UPDATES: Final = "user-status-updates"
TWEETS: Final = "tweets"
FOLLOWS: Final = "twitter-followers"
REACH: Final = "reach"


def _reach(tweets: DataFrame, follows: DataFrame) -> DataFrame:
    """Compute each URL's reach, exactly and by sketches, from all tweets and follows: one event can change many URLs."""
    return reach.compared(reach.tweeted(tweets), reach.followers(follows))


LAKE: Final = Contents(
    topics=tuple(
        Topic(name, name, AvroCodec.released(record), id="id")
        for name, record in (
            (CLICKS, USER_CLICK),
            (UPDATES, USER_STATUS_UPDATE),
            ("user-status-changes", USER_STATUS_CHANGE),
            (TWEETS, TWEET),
            (FOLLOWS, FOLLOW),
        )
    ),
    results={
        "clicks_per_day": Result((CLICKS,), clicks.per_day, ("user_id", "day"), clicks.add_per_day),
        "status_history": Result(
            (UPDATES,), statuses.history, ("user_id", "at", "id", "status"), statuses.add_history
        ),
        REACH: Result((TWEETS, FOLLOWS), _reach),
    },
)
