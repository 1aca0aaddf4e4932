"""Changes of tables as server-sent events."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from servicekit.http.server_events import ServerEvent, Source
from servicekit.tables.listing import prefixes
from servicekit.tables.protocol import KeyedRow, PlacedRow, TableWatch, UserTable, age_seconds
from streamtable.errors import StreamtableError, UnreadableRow

V = TypeVar("V")


@dataclass(frozen=True)
class TableEvents(Generic[V]):
    """A table with the mapping from its rows to events.

    Attributes:
        rows: The table.
        name: The name of the events.
        data: Returns the data of an event for a row; None: the row does not exist.
        key: The name of the key in events.
    """

    rows: UserTable[V]
    name: str
    data: Callable[[V | None], Mapping[str, Any]]
    key: str = "user_id"
    _latest: dict[tuple[str, int, int], tuple[V | None, ServerEvent]] = field(
        default_factory=dict, init=False, compare=False
    )

    def changed(self, change: KeyedRow[str, V]) -> ServerEvent:
        """Return the event of a change. All watches of the row share it, so it is encoded once."""
        place, value = (change.key, change.partition, change.offset), change.value
        kept = self._latest.get(place)
        # In a recreated topic the same offset can have another record.
        if kept is not None and kept[0] == value:
            return kept[1]
        event = self.event(change.key, change)
        self._latest.clear()
        self._latest[place] = value, event
        return event

    def event(self, user: str, at: PlacedRow[V]) -> ServerEvent:
        data = {self.key: user, **self.data(at.value), "partition": at.partition, "offset": at.offset}
        return ServerEvent(self.name, data, f"{at.partition}-{at.offset}")

    def unreadable(self, error: UnreadableRow) -> ServerEvent:
        """The event sent for a row that cannot be decoded: earlier events about it are out of date."""
        key = error.key.decode(errors="replace")
        data = {self.key: key, "of": self.name, "partition": error.partition, "before_offset": error.position}
        return ServerEvent("unreadable", data)


class _LeftOut(Exception):
    """A row that cannot be decoded was found while a change was awaited."""


class _Watched(NamedTuple):
    """A watch of a table; `held`: the row that was sent first has the changes up to this offset."""

    table: TableEvents[Any]
    watch: TableWatch[Any]
    held: int

    def event(self, change: KeyedRow[str, Any] | None) -> list[ServerEvent]:
        """Return the event of a change, if there is one that was not sent yet."""
        return [] if change is None or change.offset <= self.held else [self.table.changed(change)]


class ChangeSource:
    """A context whose source yields a user's rows and their changes, or the changes of all users with a prefix.

    Args:
        tables: The tables, with the mappings from rows to events.
        key: The key of the row; None: `prefix` applies.
        prefix: The prefix of the keys; empty: all.
    """

    def __init__(self, *tables: TableEvents[Any], key: str | None = None, prefix: str | None = None) -> None:
        self._tables = tables
        self._key = key
        self._prefix = prefix or None
        self._stack = ExitStack()
        self._first: deque[ServerEvent] = deque()
        self._watches: deque[_Watched] = deque()
        self._ended = False
        self._awaiting = False

    def __enter__(self) -> Source:
        with ExitStack() as stack:
            for table in self._tables:
                left_out = partial(self._left_out, table)
                with prefixes():
                    opened = table.rows.watch(key=self._key, prefix=self._prefix, on_unreadable=left_out)
                watch = stack.enter_context(opened)
                age_seconds(table.rows)  # not before the copy is complete
                held = -1
                if self._key is not None:
                    # Read after the watch was opened, so that no change is missed in between.
                    try:
                        row = table.rows.answer(self._key)
                        self._first.append(table.event(self._key, row))
                        held = row.offset
                    except UnreadableRow as error:
                        self._left_out(table, error)
                self._watches.append(_Watched(table, watch, held))
            self._stack = stack.pop_all()
        return self._next

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    async def _next(self, timeout: float) -> ServerEvent | None:  # noqa: ASYNC109 - the signature of a source
        event = self._taken()
        if event is not None:
            return event
        self._awaiting = True
        try:
            async with asyncio.timeout(timeout):
                await (self._one() if len(self._watches) == 1 else self._any())
        except (TimeoutError, _LeftOut):
            pass
        except StreamtableError:
            self._miss()
        finally:
            self._awaiting = False
        return self._taken()

    async def _one(self) -> None:
        """Await a change of the only table."""
        watched = self._watches[0]
        self._first += watched.event(await watched.watch.next_async())

    async def _any(self) -> None:
        """Await changes of any of several tables."""
        changes = [asyncio.ensure_future(each.watch.next_async()) for each in self._watches]
        try:
            await asyncio.wait(changes, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in changes:
                each.cancel()  # which loses no change
            found = await asyncio.gather(*changes, return_exceptions=True)
            for watched, change in zip(self._watches, found, strict=True):
                if not isinstance(change, BaseException):
                    self._first += watched.event(change)
        for change in found:
            if isinstance(change, Exception):
                raise change

    def _taken(self) -> ServerEvent | None:
        """Return an event that is available now, if any. Raises like a source after the last."""
        if self._first:
            return self._first.popleft()
        if self._ended:
            raise StopAsyncIteration
        for _ in range(len(self._watches)):
            watched = self._watches[0]
            self._watches.rotate(-1)  # so that a table that changes all the time does not starve another
            ended = watched.watch.ended  # a pending change, or that changes were missed, is still reported
            try:
                self._first += watched.event(watched.watch.next(0))
            except StreamtableError:
                self._miss()
            if self._first:  # with the number of changes left out before it
                return self._first.popleft()
            if ended:
                raise StopAsyncIteration
        return None

    def _miss(self) -> None:
        self._ended = True
        self._first.append(ServerEvent("missed", {}))

    def _left_out(self, table: TableEvents[Any], error: UnreadableRow) -> None:
        self._first.append(table.unreadable(error))
        if self._awaiting:
            raise _LeftOut  # ends the wait of the watch, so that it is reported at once
