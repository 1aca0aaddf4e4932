"""A gRPC service over a table, made from the descriptor of its .proto file: Get, MultiGet, Scan, Watch, and windows."""

from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.message_factory import GetMessageClass

from servicekit.auth.proxies import NO_PROXIES, TrustedProxies
from servicekit.grpc.table import USER_IDS, GrpcTable, KeyRules, Page
from servicekit.grpc.windows import GrpcWindows, WindowCall
from servicekit.streams import Streams
from servicekit.tables.protocol import TableAnswer, UserTable, WindowTable

V = TypeVar("V")


def _no_details(_: object) -> Mapping[str, Any]:
    return {}


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
        self._key = contract.keys.field
        self._table = GrpcTable(table, streams, contract.missing, contract.keys, proxies)
        given = windows or {}
        self._windows = [
            GrpcWindows(each, given[each.table], self._row)
            for each in contract.windows
            if each.table in given
        ]
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
        for each in self._windows:
            method = each.call.method
            listing = partial(self._list_windows, each)
            handlers[method] = self._handler(method, grpc.unary_unary_rpc_method_handler, listing)
        name = self._contract.service.full_name
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))

    def _handler(self, method: str, kind: Any, behaviour: Any) -> Any:
        return kind(behaviour, self._requests[method].FromString, self._responses[method].SerializeToString)

    def _get(self, request: Any, _: Any) -> Any:
        answer, row = self._table.get(getattr(request, self._key))
        return self._responses["Get"](**self._answer(answer, row), **self._contract.details(row))

    def _multi_get(self, request: Any, _: Any) -> Generator[None, None, Any]:
        found = yield from self._table.get_many(getattr(request, f"{self._key}s"))
        rows = [{self._key: key, "answer": self._answer(answer, row)} for key, answer, row in found.rows]
        return self._responses["MultiGet"](found=rows, unreadable=found.unreadable)

    def _scan(self, request: Any, _: Any) -> Iterator[Any]:
        return map(self._page, self._table.scan(request))

    def _page(self, page: Page[V]) -> Any:
        return self._responses["Scan"](
            rows=[{self._key: key, **self._row(row)} for key, row in page.rows],
            age_seconds=page.age_seconds,
            stale=page.stale,
            unreadable=page.unreadable,
        )

    async def _watch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        async with aclosing(self._table.watch(request, context)) as changes:
            async for reported in changes:
                change = reported.change
                yield self._responses["Watch"](
                    **{self._key: change.key},
                    **({} if change.value is None else self._row(change.value)),
                    partition=change.partition,
                    offset=change.offset,
                    unreadable=reported.unreadable,
                )

    def _list_windows(self, windows: GrpcWindows[V], request: Any, _: Any) -> Any:
        return self._responses[windows.call.method](**windows.fields(request))

    # Nested messages are given as dictionaries: protobuf makes them twice as fast as from messages of their own.

    def _row(self, row: V) -> dict[str, Any]:
        return {self._contract.field: self._contract.value(row)}

    def _answer(self, answer: TableAnswer[V], row: V) -> dict[str, Any]:
        return {
            **self._row(row),
            "partition": answer.partition,
            "offset": answer.offset,
            "age_seconds": answer.age_seconds,
            "stale": answer.stale,
        }
