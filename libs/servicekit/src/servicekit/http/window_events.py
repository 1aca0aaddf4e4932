"""Closed windows as server-sent events."""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import Header

from servicekit.http.problems import invalid
from servicekit.http.server_events import ServerEvent, Source
from servicekit.tables.protocol import ClosedWindows, WindowFollowing
from streamtable.base.types import BadToken
from streamtable.errors import ChangesMissed, DeserializationError

LastEventId = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        description="the id that was received last: the stream continues after it. Browsers send it when they reconnect",
    ),
]
_ID: Final = re.compile(r"(0|[1-9][0-9]{0,9})-(0|[1-9][0-9]{0,18})")
_OFFSET_END: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class WindowPlace:
    """The partition and the offset at which a client continues; the id of events."""

    partition: int
    offset: int

    @classmethod
    def of(cls, text: str) -> "WindowPlace":
        """Parse an id. Raises `Problem`."""
        found = _ID.fullmatch(text)
        if found is None or int(found[2]) >= _OFFSET_END:
            raise _not_of_this_stream()
        return cls(int(found[1]), int(found[2]))


def _not_of_this_stream() -> Exception:
    return invalid("header.last-event-id", "must be the id of an event of this stream")


class ClosedSource:
    """A context whose source yields the windows of a key as they close.

    The first event and each heartbeat only carry the id: a client that was disconnected continues there.

    Args:
        windows: The topic of closed windows.
        key: The key of the windows.
        begin: The position to start from; None: with the windows that close from now on.
        name: The name of the events.
        member: The name of the key in events.
        members: Returns the members of an event for a row.
    """

    def __init__(
        self,
        windows: ClosedWindows[Any],
        key: str,
        begin: WindowPlace | None,
        *,
        name: str,
        member: str,
        members: Callable[[Any], Mapping[str, Any]],
    ) -> None:
        self._windows, self._key, self._begin = windows, key, begin
        self._name, self._member, self._members = name, member, members
        self._following: WindowFollowing[Any] | None = None
        self._placed = False

    def __enter__(self) -> Source:
        begin = self._begin
        place = (None, None) if begin is None else (begin.partition, begin.offset)
        try:
            self._following = self._windows.follow(self._key, *place).__enter__()
        except BadToken:
            raise _not_of_this_stream() from None
        return self._next

    def __exit__(self, *raised: object) -> None:
        if self._following is not None:
            self._following.__exit__(*raised)

    async def _next(self, timeout: float) -> ServerEvent:  # noqa: ASYNC109 - the signature of a source
        following = self._following
        assert following is not None, "it is a context"

        def event(name: str, **data: Any) -> ServerEvent:
            return ServerEvent(name, data, f"{following.partition}-{following.offset}")

        if not self._placed:
            self._placed = True
            return event("")
        try:
            async with asyncio.timeout(timeout):
                closed = await following.next_async()
        except TimeoutError:
            return event("")
        except (ChangesMissed, DeserializationError) as error:
            name = "missed" if isinstance(error, ChangesMissed) else "unreadable"
            return event(name, partition=error.partition, offset=error.offset)
        bounds = {"start_ms": closed.key.start_ms, "end_ms": closed.key.end_ms}
        place = {"partition": closed.partition, "offset": closed.offset}
        row = {self._member: self._key, **self._members(closed.value)}
        return event(self._name, **{**row, **bounds, **place})
