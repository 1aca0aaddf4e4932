"""The streams and tables of user statuses, the group that keeps them, and the table of clicks that it joins."""

from typing import Final

from contracts.event_time import MAX_AHEAD_SECONDS, fault_of_time
from contracts.records import (
    USER_STATUS,
    USER_STATUS_CHANGE,
    USER_STATUS_UPDATE,
    UserStatus,
    UserStatusChange,
    UserStatusUpdate,
)
from streamtable import Avro, Context, Group, Input, Join, OnError, Output, Persist, Stream, String, Table
from user_status.domain import change_of, is_later, row_of

UPDATES: Final[Stream[str, UserStatusUpdate]] = Stream(
    "user-status-updates", key=String(), value=Avro(USER_STATUS_UPDATE)
)
"""One record for each status, keyed by the user's id."""

CHANGES: Final[Stream[str, UserStatusChange]] = Stream(
    "user-status-changes", key=String(), value=Avro(USER_STATUS_CHANGE)
)
"""One record for each change, keyed by the user's id, in processing order."""


USER_CLICKS: Final = "user-clicks"
"""The topic from whose events the table of clicks is computed."""


def click_counts(group: str) -> Table[str, int]:
    """Return the table of clicks by user that a click counting group writes: a contract between the two scenarios."""
    return Table(f"{group}-table", key=String(), value=Avro("long"), group=group)


def statuses(
    name: str = "user-status", clicks_group: str = "click-count", max_ahead_seconds: float = MAX_AHEAD_SECONDS
) -> Group[str, UserStatus]:
    """Return the group; its table is `<name>-table`.

    Args:
        name: The name of the group.
        clicks_group: The click counting group with whose table each status is joined.
        max_ahead_seconds: How far an update's time may be ahead of its record's timestamp; others become
            dead letters, because the latest status applies, and one from the far future would be the latest for ever.
    """
    clicks = click_counts(clicks_group)

    def keep(ctx: Context[str, UserStatus], update: UserStatusUpdate) -> None:
        fault = fault_of_time(update["at"], ctx.timestamp_ms, max_ahead_seconds)
        if fault is not None:
            ctx.fail(fault)
        old = ctx.value
        if not is_later(update, old):
            return
        new = row_of(update, ctx.join(clicks))
        ctx.set(new)
        change = change_of(old, new)
        if change is not None:
            ctx.emit(CHANGES, ctx.key, change)

    return Group(
        name,
        Input(UPDATES, keep, on_error=OnError.DEAD_LETTER),
        Join(clicks),
        Persist(Avro(USER_STATUS)),
        Output(CHANGES),
    )
