"""Clicks of each user and minute, and of each URL and hour: windowed tables, and a record for each window that has closed."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from click_count.topics import ONCE, USER_CLICKS
from streamtable import Avro, OnError, Stream, String, Table
from streamtable.flow import Flow, Tumbling, Windowed, WindowedKey

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
GRACE: Final = timedelta(seconds=10)
MINUTES: Final = Tumbling(timedelta(milliseconds=MINUTE_MS), grace=GRACE)
"""Windows of a minute by event time. A click later than ten seconds after the end of its minute is late and not counted."""
HOURS: Final = Tumbling(timedelta(milliseconds=HOUR_MS), grace=GRACE)
"""Windows of an hour by event time, with the same grace."""
CLICK_MINUTES: Final[Stream[Windowed[str], int]] = Stream(
    "click-minutes", key=WindowedKey(String(), MINUTE_MS), value=Avro("long")
)
"""One record for each user and minute, when the minute has closed: its final count. Kafka Streams can read the keys."""
URL_HOURS: Final[Stream[Windowed[str], int]] = Stream(
    "url-hours", key=WindowedKey(String(), HOUR_MS), value=Avro("long")
)
"""One record for each URL and hour, when the hour has closed: its final count."""

NAME: Final = "click-windows"
MINUTES_TABLE: Final = "minutes"
HOURS_TABLE: Final = "hours"


@dataclass(frozen=True)
class ClickWindows:
    """The flow, and the tables that it keeps.

    Attributes:
        flow: Two groups: one counts by user, and sends the clicks keyed by URL to the other, which counts those.
        minutes: The clicks of each user and minute.
        hours: The clicks of each URL and hour.
    """

    flow: Flow
    minutes: Table[Windowed[str], int]
    hours: Table[Windowed[str], int]

    @property
    def tables(self) -> Mapping[str, Table[Windowed[str], int]]:
        """The tables, by the names under which services serve them."""
        return {MINUTES_TABLE: self.minutes, HOURS_TABLE: self.hours}


CLOSED: Final[Mapping[str, Stream[Windowed[str], int]]] = {
    MINUTES_TABLE: CLICK_MINUTES,
    HOURS_TABLE: URL_HOURS,
}
"""The topics of closed windows, by the same names."""


def click_windows(name: str = NAME) -> ClickWindows:
    """Return the flow of this name. Repeated clicks count once."""
    flow = Flow(name, on_error=OnError.DEAD_LETTER)
    clicks = flow.stream(USER_CLICKS, time=lambda click: click["at"], once=ONCE)
    minutes = clicks.group_by_key().window(MINUTES).count(MINUTES_TABLE, value=Avro("long"))
    minutes.final().to(CLICK_MINUTES)
    urls = clicks.group_by("by-url", lambda click: click["url"], key=String())
    hours = urls.window(HOURS, retention=timedelta(days=7)).count(HOURS_TABLE, value=Avro("long"))
    hours.final().to(URL_HOURS)
    return ClickWindows(flow, minutes.table, hours.table)
