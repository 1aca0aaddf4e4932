"""Clicks of each user and minute: a windowed table, and a record for each user and minute that has closed."""

from datetime import timedelta
from typing import Final

from click_count.topics import ONCE, USER_CLICKS
from streamtable import Avro, OnError, Stream, String, Table
from streamtable.flow import Flow, Tumbling, Windowed, WindowedKey

MINUTE_MS: Final = 60_000
MINUTES: Final = Tumbling(timedelta(milliseconds=MINUTE_MS), grace=timedelta(seconds=10))
"""By the time of the click. A click that is noted later than ten seconds after its minute is not counted in it."""
CLICK_MINUTES: Final[Stream[Windowed[str], int]] = Stream(
    "click-minutes", key=WindowedKey(String(), MINUTE_MS), value=Avro("long")
)
"""One record for each user and minute, when the minute has closed: its final count. Kafka Streams can read the keys."""


NAME: Final = "click-windows"


def clicks_per_minute(name: str = NAME) -> tuple[Flow, Table[Windowed[str], int]]:
    """Return the flow, and the table `<name>-minutes` that it keeps. Repeated clicks count once."""
    flow = Flow(name, on_error=OnError.DEAD_LETTER)
    clicks = flow.stream(USER_CLICKS, time=lambda click: click["at"], once=ONCE)
    minutes = clicks.group_by_key().window(MINUTES).count("minutes", value=Avro("long"))
    minutes.final().to(CLICK_MINUTES)
    return flow, minutes.table
