"""The query service: click counts over REST, from a local copy of the table."""

from typing import Final

from click_count.models import TopUsers, UrlHours, UserCount, UserCountAnswer, UserCountPage, UserMinutes
from click_count.windows import HOURS_TABLE, MINUTES_TABLE
from servicekit.http.table_api import (
    GetRow,
    ListRows,
    ListWindows,
    TableApi,
    TopRows,
    WatchRow,
    WatchRows,
    WatchWindows,
)
from servicekit.http.urls import URL

CLOSED_TEXT: Final = (
    'Server-sent events `closed`, one for each window, with data like `{{{}, "count": 3, "start_ms": 1700000040000, '
    '"end_ms": 1700000100000, "partition": 2, "offset": 41}}`. A client that reconnects with the last id it has received as '
    "`Last-Event-ID`, as browsers do, gets all windows that have closed since. `missed` says that Kafka has deleted windows "
    "meanwhile, `unreadable` that one cannot be decoded; both name partition and offset."
)
QUERY: Final[TableApi[int]] = TableApi(
    title="click-count query",
    version="1.4.0",
    text="The click count of each user, from this replica's local copy of the table. Every response has the age of the "
    "copy; until the copy is complete the service responds with 503.",
    members=lambda count: {"count": count},
    event="count",
    events_text='Server-sent events `count`, with data like `{"user_id": "alice", "count": 3, "partition": 9, "offset": '
    '41}`; `count` is null when the user was deleted. `unreadable`, with data like `{"user_id": "alice", "of": "count", '
    '"partition": 9, "before_offset": 42}`, is sent instead of a count that cannot be decoded. `missed` is sent last if '
    "changes were missed: reconnect.",
    routes=(
        GetRow(
            "/clicks/{user}",
            "get_count",
            "The clicks of one user; 404 if there are none. With `If-None-Match` an unchanged row is not sent again.",
            "counts",
            UserCountAnswer,
            missing="no clicks of this user are known",
        ),
        ListRows(
            "/clicks",
            "list_counts",
            "All users, a page at a time. This is no snapshot: each page has the state of the table at the time of its request.",
            "counts",
            UserCountPage,
            UserCount,
        ),
        TopRows(
            "/top",
            "get_top",
            "The users with the most clicks; equal counts by id.",
            "counts",
            TopUsers,
            UserCount,
            number="count",
        ),
        ListWindows(
            "/clicks/{user}/minutes",
            "get_minutes",
            "The clicks of one user by the minute of the click, in a range of time. They are kept for a day.",
            "counts",
            UserMinutes,
            members=lambda count: {"count": count},
            table=MINUTES_TABLE,
        ),
        ListWindows(
            "/urls/hours",
            "get_hours",
            "The clicks of one URL by the hour of the click, in a range of time. They are kept for a week.",
            "counts",
            UrlHours,
            members=lambda count: {"count": count},
            table=HOURS_TABLE,
            key=URL,
        ),
        WatchWindows(
            "/clicks/{user}/minutes/closed",
            "watch_minutes",
            "Each minute of one user once it has closed, with its final count.",
            events_text=CLOSED_TEXT.format('"user_id": "alice"'),
            members=lambda count: {"count": count},
            closed=MINUTES_TABLE,
        ),
        WatchWindows(
            "/urls/hours/closed",
            "watch_hours",
            "Each hour of one URL once it has closed, with its final count.",
            events_text=CLOSED_TEXT.format('"url": "https://example.org/"'),
            members=lambda count: {"count": count},
            closed=HOURS_TABLE,
            key=URL,
        ),
        WatchRow("/clicks/{user}/events", "watch_user", "The user's count now and each time it changes."),
        WatchRows("/events", "watch_users", "Each change of a count from now on."),
    ),
)
build_query: Final = QUERY.build
