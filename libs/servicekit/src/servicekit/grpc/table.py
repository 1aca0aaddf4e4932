"""Get, MultiGet, Scan and Watch on a table, independent of the messages of a service."""

from asyncio import Future
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import grpc

from servicekit.auth.proxies import NO_PROXIES, TrustedProxies
from servicekit.auth.rate_limit import peer_name
from servicekit.grpc.errors import RETRY_SECONDS, CallRefused, invalid
from servicekit.grpc.peers import caller_host
from servicekit.peer_places import GaveWay, PeerPlaces
from servicekit.streams import Streams, unless
from servicekit.tables.listing import listing
from servicekit.tables.protocol import (
    STALE_SECONDS,
    TableAnswer,
    TableChange,
    TableWatch,
    UserTable,
    age_seconds,
)
from servicekit.tables.urls import url, url_prefix
from servicekit.tables.user_ids import user_id, user_id_prefix
from streamtable.errors import RetryLater, StreamtableError, UnreadableRow

V = TypeVar("V")

KEYS_MAX: Final = 1000
KEYS_IN_SLICE: Final = 20
"""The keys that MultiGet reads before other calls get a turn: about a millisecond."""
SCAN_ROWS_DEFAULT: Final = 1000
SCAN_ROWS_MAX: Final = 100_000
SCAN_ROWS_IN_MESSAGE: Final = 500

WATCHES_OF_MANY_MAX: Final = 100
"""The limit of watches of several keys: each buffers up to 10,000 changes for a slow reader. A watch of one key buffers few."""
WATCHES_OF_MANY_PER_PEER: Final = 25


class ScanRequest(Protocol):
    """The common fields of the services' messages of this name."""

    @property
    def prefix(self) -> str: ...
    @property
    def start_after(self) -> str: ...
    @property
    def limit(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Page(Generic[V]):
    """Users and their rows as of one moment.

    Attributes:
        unreadable: The number of rows that were left out because they cannot be decoded.
    """

    rows: list[tuple[str, V]]
    age_seconds: float
    stale: bool
    unreadable: int


@dataclass(frozen=True, slots=True)
class FoundRows(Generic[V]):
    """The rows of several users.

    Attributes:
        rows: The users with a row, each with its answer and its row, in the order of the request.
        unreadable: The users whose row cannot be decoded.
    """

    rows: list[tuple[str, TableAnswer[V], V]]
    unreadable: list[str]


@dataclass(frozen=True, slots=True)
class ReportedChange(Generic[V]):
    """A change of a watched row.

    Attributes:
        unreadable: The number of changes that this watch has left out so far because they cannot be decoded.
    """

    change: TableChange[V]
    unreadable: int


@dataclass(frozen=True, slots=True)
class KeyRules:
    """The kind of a table's keys and the limits on them.

    Attributes:
        field: The name of the key's field in the messages; an s is appended for several keys.
        check: Returns a valid key, or raises ValueError with the rule.
        check_prefix: Returns a valid prefix of a key, or raises ValueError with the rule.
    """

    field: str
    check: Callable[[str], str]
    check_prefix: Callable[[str], str]


USER_IDS: Final = KeyRules("user_id", user_id, user_id_prefix)
URLS: Final = KeyRules("url", url, url_prefix)


class GrpcTable(Generic[V]):
    """Answers the calls of a table service.

    Args:
        table: The table.
        streams: Admits scans and watches.
        missing: The text of NOT_FOUND for a user without a row.
        keys: The kind of the keys; default: user ids.
        proxies: The proxies whose metadata `forwarded` names the caller.
    """

    def __init__(
        self,
        table: UserTable[V],
        streams: Streams,
        missing: str,
        keys: KeyRules = USER_IDS,
        proxies: TrustedProxies = NO_PROXIES,
    ) -> None:
        self._keys = keys
        self._table = table
        self._streams = streams
        self._missing = missing
        self._proxies = proxies
        self._watches_of_many = PeerPlaces(WATCHES_OF_MANY_MAX, WATCHES_OF_MANY_PER_PEER)

    def get(self, user: str) -> tuple[TableAnswer[V], V]:
        """Return the answer about one user, and its row."""
        answer = self._table.answer(self._key(user))
        row = answer.value
        if row is None:
            raise CallRefused(grpc.StatusCode.NOT_FOUND, self._missing)
        return answer, row

    def get_many(self, users: Iterable[str]) -> Generator[None, None, FoundRows[V]]:
        """Return the rows of the users that have one. A generator that yields None between slices of its work."""
        given = list(users)
        if len(given) > KEYS_MAX:
            raise invalid(f"{self._keys.field}s", f"at most {KEYS_MAX}")
        age_seconds(self._table)  # not before the copy is complete, even if the request names no key
        found: FoundRows[V] = FoundRows([], [])
        for number, user in enumerate([self._key(text, f"s[{n}]") for n, text in enumerate(given)], 1):
            if number % KEYS_IN_SLICE == 0:
                yield
            try:
                answer = self._table.answer(user)
            except UnreadableRow:
                found.unreadable.append(user)
                continue
            if (row := answer.value) is not None:
                found.rows.append((user, answer, row))
        return found

    def scan(self, request: ScanRequest) -> Iterator[Page[V]]:
        """Yield users in order, page after page."""
        prefix = self._prefix(request.prefix)
        after: str | None = request.start_after or None
        if not 0 <= request.limit <= SCAN_ROWS_MAX:
            raise invalid("limit", f"0 to {SCAN_ROWS_MAX}")
        left = request.limit or SCAN_ROWS_DEFAULT
        with self._streams.admit() as alive:
            while left > 0:
                if not alive():
                    raise self._streams.ended()
                # A page at a time: a slow caller must not keep a snapshot of the store open.
                size = min(left, SCAN_ROWS_IN_MESSAGE)
                found = listing(self._table, prefix, after, size)
                age = age_seconds(self._table)
                left = left - size if found.more else 0
                after = found.rows[-1][0] if found.more else None
                page = Page(found.rows, age, age > STALE_SECONDS, found.unreadable)
                del found
                yield page
                del page  # it would occupy memory until the next page is requested

    async def watch(self, request: Any, context: Any) -> AsyncGenerator[ReportedChange[V], None]:
        """Yield each change from now on of the request's `target`: one user, or all with a prefix.

        A change that cannot be decoded ends the watch of one user; from that of many it is left out.
        """
        left_out = 0

        def leave_out(error: UnreadableRow) -> None:
            nonlocal left_out
            if one:
                raise error
            left_out += 1

        one = request.WhichOneof("target") == self._keys.field
        key = self._key(getattr(request, self._keys.field)) if one else None
        prefix = None if one else self._prefix(request.prefix)
        with (
            self._streams.admit_in_loop() as over,
            nullcontext(_nothing) if prefix is None else self._place(context, over) as active,
            self._table.watch(key=key, prefix=prefix, on_unreadable=leave_out) as watch,
        ):
            age_seconds(self._table)  # not before the copy is complete
            # Sent before the first change: from now on the caller misses no change.
            await context.send_initial_metadata(())
            while (change := await _next(watch, over)) is not None:
                yield ReportedChange(change, left_out)
                active()
        raise over.result() or self._streams.ended()

    def _place(
        self, context: Any, over: Future[RetryLater | None]
    ) -> AbstractContextManager[Callable[[], None]]:
        """Take a place among the watches of many users; when it is taken away, `over` is completed with the reason."""

        def give_way() -> None:
            if not over.done():
                over.set_result(GaveWay("another address has fewer watches"))

        return self._watches_of_many.take(peer_name(caller_host(context, self._proxies)), give_way)

    def _key(self, text: str, place: str = "") -> str:
        try:
            return self._keys.check(text)
        except ValueError as error:
            raise invalid(f"{self._keys.field}{place}", str(error)) from None

    def _prefix(self, text: str) -> str:
        try:
            return self._keys.check_prefix(text)
        except ValueError as error:
            raise invalid("prefix", str(error)) from None


def _nothing() -> None:
    pass


async def _next(watch: TableWatch[V], over: Future[Any]) -> TableChange[V] | None:
    if over.done():
        return None  # checked first: if changes never pause, nothing else would end the watch
    try:
        return await unless(over, watch.next_async())
    except UnreadableRow:
        raise
    except StreamtableError:
        details = "changes were missed; watch again, then read what may have changed"
        raise CallRefused(
            grpc.StatusCode.UNAVAILABLE, details, reason="MISSED_CHANGES", retry_seconds=RETRY_SECONDS
        ) from None
