"""A gRPC service over a table, made from the descriptor of its .proto file: Get, MultiGet, Scan, Watch, and windows."""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

import grpc
from google.protobuf.message_factory import GetMessageClass

from servicekit.auth.proxies import NO_PROXIES, TrustedProxies
from servicekit.auth.rate_limit import peer_name
from servicekit.grpc.errors import RETRY_SECONDS, CallRefused, invalid
from servicekit.grpc.peers import caller_host
from servicekit.peer_places import GaveWay, PeerPlaces
from servicekit.streams import Streams, unless
from servicekit.tables.keys import USER_IDS, KeyRules
from servicekit.tables.listing import Listing, listing, prefixes
from servicekit.tables.protocol import (
    KeyedRow,
    TableAnswer,
    TableWatch,
    UserTable,
    WindowTable,
    age_seconds,
    freshness,
    place_of,
)
from streamtable.errors import RetryLater, StreamtableError, UnreadableRow

V = TypeVar("V")
KEYS_MAX: Final = 1000
KEYS_IN_SLICE: Final = 20
"""The keys that MultiGet reads before other calls get a turn: about a millisecond."""
SCAN_ROWS_DEFAULT: Final = 1000
SCAN_ROWS_MAX: Final = 100_000
SCAN_ROWS_IN_MESSAGE: Final = 500
SCAN_BYTES_IN_MESSAGE: Final = 1024 * 1024
"""By default clients refuse messages of more than 4 MiB. A larger row is sent alone."""
TIME_MS_MAX: Final = 2**53 - 1  # the same maximum as in REST

WATCHES_OF_MANY_MAX: Final = 100
"""The limit of watches of several keys: each buffers up to 10,000 changes for a slow reader. A watch of one key buffers few."""
WATCHES_OF_MANY_PER_PEER: Final = 25


def _no_details(_: object) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class WindowCall:
    """A method of a service that lists the windows of one key in a range of time.

    Its request has the key, `since_ms` and `until_ms`; its response has `windows`, each with `start_ms`, `end_ms` and the
    field of the contract, and `age_seconds`, `stale` and `unreadable`.

    Attributes:
        method: The name of the method.
        table: The name of the windowed table among those of the service.
        keys: The kind of the table's keys.
    """

    method: str
    table: str
    keys: KeyRules = USER_IDS


@dataclass(frozen=True)
class TableContract(Generic[V]):
    """The mapping between the messages of a service and the rows of its table. All services use the same message names.

    Attributes:
        service: The descriptor of the service: `pb.DESCRIPTOR.services_by_name["ClickCounts"]`.
        field: The field of the messages that holds a row.
        value: Returns a row in the form of that field: a number, a text, a message, or a dictionary of a message's fields.
        missing: The text of NOT_FOUND.
        keys: The kind of the table's keys.
        details: Returns the fields of a row that only Get answers with.
        windows: The methods that list windows of further tables.
    """

    service: Any
    field: str
    value: Callable[[V], Any]
    missing: str
    keys: KeyRules = USER_IDS
    details: Callable[[V], Mapping[str, Any]] = _no_details
    windows: Sequence[WindowCall] = ()


class GrpcTableService(Generic[V]):
    """The gRPC implementation of one table service.

    Args:
        contract: The mapping of messages and rows.
        table: The table.
        streams: Admits scans and watches.
        proxies: The proxies whose metadata `forwarded` names the caller.
        windows: Windowed tables by name. A method whose table is not among them is not served.
    """

    def __init__(
        self,
        contract: TableContract[V],
        table: UserTable[V],
        streams: Streams,
        proxies: TrustedProxies = NO_PROXIES,
        windows: Mapping[str, WindowTable[V]] | None = None,
    ) -> None:
        self._contract = contract
        self._keys = contract.keys
        self._table = table
        self._streams = streams
        self._proxies = proxies
        self._windows = windows or {}
        self._watches_of_many = PeerPlaces(WATCHES_OF_MANY_MAX, WATCHES_OF_MANY_PER_PEER)
        methods = contract.service.methods_by_name.values()
        self._requests = {method.name: GetMessageClass(method.input_type) for method in methods}
        self._responses = {method.name: GetMessageClass(method.output_type) for method in methods}

    def register(self, server: Any) -> None:
        """Add the methods to a server of `grpc.aio`."""
        handlers = {
            "Get": self._handler("Get", grpc.unary_unary_rpc_method_handler, self._get),
            "MultiGet": self._handler("MultiGet", grpc.unary_unary_rpc_method_handler, self._multi_get),
            "Scan": self._handler("Scan", grpc.unary_stream_rpc_method_handler, self._scan),
            "Watch": self._handler("Watch", grpc.unary_stream_rpc_method_handler, self._watch),
        }
        for call in self._contract.windows:
            if (table := self._windows.get(call.table)) is not None:
                lists = partial(self._list_windows, call, table)
                handlers[call.method] = self._handler(call.method, grpc.unary_unary_rpc_method_handler, lists)
        name = self._contract.service.full_name
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))

    def _handler(self, method: str, kind: Any, behaviour: Any) -> Any:
        return kind(behaviour, self._requests[method].FromString, self._responses[method].SerializeToString)

    def _get(self, request: Any, _: Any) -> Any:
        answer = self._table.answer(_key(request, self._keys))
        row = answer.value
        if row is None:
            raise CallRefused(grpc.StatusCode.NOT_FOUND, self._contract.missing)
        return self._responses["Get"](**self._answer(answer, row), **self._contract.details(row))

    def _multi_get(self, request: Any, _: Any) -> Generator[None, None, Any]:
        """Return the rows of the keys that have one. A generator that yields None between slices of its work."""
        field = self._keys.field
        given = getattr(request, f"{field}s")
        if len(given) > KEYS_MAX:
            raise invalid(f"{field}s", f"at most {KEYS_MAX}")
        age_seconds(self._table)  # not before the copy is complete, even if the request names no key
        keys = [_checked(self._keys.check, text, f"{field}s[{n}]") for n, text in enumerate(given)]
        found: list[Any] = []
        unreadable: list[str] = []
        for number, key in enumerate(keys, 1):
            if number % KEYS_IN_SLICE == 0:
                yield
            try:
                answer = self._table.answer(key)
            except UnreadableRow:
                unreadable.append(key)
                continue
            if (row := answer.value) is not None:
                found.append({field: key, "answer": self._answer(answer, row)})
        return self._responses["MultiGet"](found=found, unreadable=unreadable)

    def _scan(self, request: Any, _: Any) -> Iterator[Any]:
        """Yield rows in the order of their keys, page after page."""
        prefix = self._prefix(request)
        after: str | None = request.start_after or None
        if not 0 <= request.limit <= SCAN_ROWS_MAX:
            raise invalid("limit", f"0 to {SCAN_ROWS_MAX}")
        left, most = request.limit or SCAN_ROWS_DEFAULT, SCAN_ROWS_IN_MESSAGE
        with self._streams.admit() as alive:
            while left > 0:
                if not alive():
                    raise self._streams.ended()
                # A page at a time: a slow caller must not keep a snapshot of the store open.
                size = min(left, most)
                found = listing(self._table, prefix, after, size)
                page, rows = self._page(found), len(found.rows)
                if (page_bytes := page.ByteSize()) > SCAN_BYTES_IN_MESSAGE and rows > 1:
                    # Read again: a page says how many rows beside its own are unreadable.
                    most = rows // 2
                    continue
                most = 2 * size if page_bytes < SCAN_BYTES_IN_MESSAGE // 4 else size
                most = min(most, SCAN_ROWS_IN_MESSAGE)
                left = left - size if found.more else 0
                after = found.rows[-1][0] if found.more else None
                del found
                yield page
                del page  # it would occupy memory until the next page is requested

    def _page(self, found: Listing[V]) -> Any:
        rows = [{self._keys.field: key, **self._row(row)} for key, row in found.rows]
        return self._responses["Scan"](rows=rows, unreadable=found.unreadable, **freshness(self._table))

    async def _watch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Yield each change from now on of the request's `target`: one key, or all with a prefix.

        A change that cannot be decoded ends the watch of one key; from that of many it is left out.
        """
        left_out = 0

        def leave_out(error: UnreadableRow) -> None:
            nonlocal left_out
            if one:
                raise error
            left_out += 1

        one = request.WhichOneof("target") == self._keys.field
        key = _key(request, self._keys) if one else None
        prefix = None if one else self._prefix(request) or None
        changes = partial(self._table.watch, key=key, prefix=prefix, on_unreadable=leave_out)
        with (
            self._streams.admit_in_loop() as over,
            nullcontext(_nothing) if one else self._place(context, over) as active,
            await _opened(changes) as watch,
        ):
            age_seconds(self._table)  # not before the copy is complete
            # Sent before the first change: from now on the caller misses no change.
            await context.send_initial_metadata(())
            while (change := await _next(watch, over)) is not None:
                yield self._responses["Watch"](
                    **{self._keys.field: change.key},
                    **({} if change.value is None else self._row(change.value)),
                    partition=change.partition,
                    offset=change.offset,
                    unreadable=left_out,
                )
                active()
        raise over.result() or self._streams.ended()

    def _place(
        self, context: Any, over: asyncio.Future[RetryLater | None]
    ) -> AbstractContextManager[Callable[[], None]]:
        """Take a place among the watches of many keys; when it is taken away, `over` is completed with the reason."""

        def give_way() -> None:
            if not over.done():
                over.set_result(GaveWay("another address has fewer watches"))

        return self._watches_of_many.take(peer_name(caller_host(context, self._proxies)), give_way)

    def _list_windows(self, call: WindowCall, table: WindowTable[V], request: Any, _: Any) -> Any:
        key = _key(request, call.keys)
        for name in ("since_ms", "until_ms"):
            if not 0 <= getattr(request, name) <= TIME_MS_MAX:
                raise invalid(name, f"0 to {TIME_MS_MAX}")
        current = freshness(table)  # not before the copy is complete
        found = table.windows(key, request.since_ms, request.until_ms or TIME_MS_MAX)
        windows = [
            {"start_ms": window.start_ms, "end_ms": window.end_ms, **self._row(row)} for window, row in found
        ]
        return self._responses[call.method](windows=windows, unreadable=found.unreadable, **current)

    # Nested messages are given as dictionaries: protobuf makes them twice as fast as from messages of their own.

    def _row(self, row: V) -> dict[str, Any]:
        return {self._contract.field: self._contract.value(row)}

    def _answer(self, answer: TableAnswer[V], row: V) -> dict[str, Any]:
        return {**self._row(row), **place_of(answer)}

    def _prefix(self, request: Any) -> str:
        return _checked(self._keys.check_prefix, request.prefix, "prefix")


def _key(request: Any, keys: KeyRules) -> str:
    return _checked(keys.check, getattr(request, keys.field), keys.field)


def _checked(check: Callable[[str], str], text: str, field: str) -> str:
    try:
        return check(text)
    except ValueError as error:
        raise invalid(field, str(error)) from None


def _nothing() -> None:
    pass


async def _opened(watch: Callable[[], AbstractContextManager[V]]) -> AbstractContextManager[V]:
    """Open a watch in a thread, as it may wait for Kafka. One that is opened for a cancelled call is closed."""
    opening = asyncio.ensure_future(asyncio.to_thread(watch))
    try:
        with prefixes():
            return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(lambda done: done.exception() or done.result().__exit__(None, None, None))
        raise


async def _next(watch: TableWatch[V], over: asyncio.Future[Any]) -> KeyedRow[str, V] | None:
    if over.done():
        return None  # checked first: if changes never pause, nothing else would end the watch
    try:
        return await unless(over, watch.next_async())
    except UnreadableRow:
        raise
    except StreamtableError:
        code, text = (
            grpc.StatusCode.UNAVAILABLE,
            "changes were missed; watch again, then read what may have changed",
        )
        raise CallRefused(code, text, reason="MISSED_CHANGES", retry_seconds=RETRY_SECONDS) from None
