"""What these services are told beyond the library's own settings: variables that begin with TWEET_REACH_."""

from dataclasses import dataclass
from typing import ClassVar

from servicekit.process.service_settings import ServiceSettings


@dataclass(frozen=True, kw_only=True)
class ReachSettings(ServiceSettings):
    """Settings of tweet reach.

    Attributes:
        group: TWEET_REACH_GROUP: what the names of its groups and topics begin with.
        batch_seconds: TWEET_REACH_BATCH_SECONDS: after so long a batch is complete, however small; 0 to 8.
    """

    PREFIX: ClassVar[str] = "TWEET_REACH_"

    group: str = "tweet-reach"
    batch_seconds: float = 5.0
