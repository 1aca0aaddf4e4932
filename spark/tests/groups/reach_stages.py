"""The stages of tweet reach, as `--graph` finds them."""

from typing import Final

from microbatch import MicroBatch
from tweet_reach.stages import authors_stage, urls_stage

STAGES: Final[list[MicroBatch]] = [authors_stage("tweet-reach"), urls_stage("tweet-reach")]
