"""The settings of tweet reach: variables that begin with TWEET_REACH_."""

from typing import Annotated, ClassVar

from servicekit.process.service_settings import ServiceSettings
from streamtable.base.environment import seconds


class ReachSettings(ServiceSettings):
    """Settings of tweet reach.

    Attributes:
        group: TWEET_REACH_GROUP: the prefix of its groups and topics.
        batch_seconds: TWEET_REACH_BATCH_SECONDS: the seconds after which a batch is complete, however small; 0 to 8.
    """

    env_prefix: ClassVar[str] = "TWEET_REACH_"

    group: str = "tweet-reach"
    batch_seconds: Annotated[float, seconds(0, 8)] = 5.0
