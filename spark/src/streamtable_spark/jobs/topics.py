"""Which topics the jobs know, and what is made from them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from contracts.records import FOLLOW, TWEET, USER_CLICK, USER_STATUS_CHANGE, USER_STATUS_UPDATE
from contracts.schema import RecordSchema
from streamtable_spark.errors import ConfigurationError
from streamtable_spark.transforms.avro import Framing, released

CLICKS: Final = "user-clicks"
UPDATES: Final = "user-status-updates"
TWEETS: Final = "tweets"
FOLLOWS: Final = "twitter-followers"

RECORDS: Final[Mapping[str, RecordSchema[Any]]] = {
    CLICKS: USER_CLICK,
    UPDATES: USER_STATUS_UPDATE,
    "user-status-changes": USER_STATUS_CHANGE,
    TWEETS: TWEET,
    FOLLOWS: FOLLOW,
}
"""The record of each topic."""


@dataclass(frozen=True)
class Topic:
    """A topic to read.

    Attributes:
        name: The name of its tables.
        kafka: The name of the topic in Kafka.
        record: The schema of its values, which may be written with any released version of it.
    """

    name: str
    kafka: str
    record: RecordSchema[Any]

    def framing(self) -> Framing:
        """How its values are read; only with a session."""
        return released(self.record)


def topics_of(arguments: list[str]) -> tuple[Topic, ...]:
    """From arguments of the form NAME or NAME=TOPIC; without any, all that are known.

    Raises:
        ConfigurationError: A name is unknown or given twice.
    """
    found = []
    for text in arguments or RECORDS:
        name, renamed, kafka = text.partition("=")
        if name not in RECORDS or (renamed and not kafka):
            raise ConfigurationError(
                f"--topic {text!r}: NAME or NAME=TOPIC is needed, with a NAME among {', '.join(RECORDS)}"
            )
        found.append(Topic(name, kafka or name, RECORDS[name]))
    for values in ([each.name for each in found], [each.kafka for each in found]):
        if twice := {value for value in values if values.count(value) > 1}:
            raise ConfigurationError(f"--topic {', '.join(sorted(twice))} is named more than once")
    return tuple(found)
