"""A gRPC service over a table, made from the descriptor of its .proto file: Get, MultiGet, Scan and Watch."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.message_factory import GetMessageClass

from servicekit.grpc.table import USER_IDS, GrpcTable, Keys
from servicekit.streams import Streams
from servicekit.tables.protocol import Answer, UserTable

V = TypeVar("V")


def _no_details(_: object) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class TableContract(Generic[V]):
    """How the messages of a service hold the rows of its table. The messages are called alike in all services.

    Attributes:
        service: The descriptor of the service: `pb.DESCRIPTOR.services_by_name["ClickCounts"]`.
        field: The field of the messages that holds a row.
        value: Returns a row in the form of that field.
        missing: The text of NOT_FOUND.
        keys: The kind of the table's keys.
        details: Returns the fields of a row that only Get answers with.
    """

    service: Any
    field: str
    value: Callable[[V], Any]
    missing: str
    keys: Keys = USER_IDS
    details: Callable[[V], Mapping[str, Any]] = _no_details


class GrpcTableService(Generic[V]):
    """Answers the calls of one service.

    Args:
        contract: The messages.
        table: The rows.
        streams: Admits scans and watches.
    """

    def __init__(self, contract: TableContract[V], table: UserTable[V], streams: Streams) -> None:
        self._contract = contract
        self._key = contract.keys.field
        self._table = GrpcTable(table, streams, contract.missing, contract.keys)
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
        name = self._contract.service.full_name
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))

    def _handler(self, method: str, kind: Any, behaviour: Any) -> Any:
        return kind(behaviour, self._requests[method].FromString, self._responses[method].SerializeToString)

    def _get(self, request: Any, _: Any) -> Any:
        answer, row = self._table.get(getattr(request, self._key))
        return self._answer(answer, row, **self._contract.details(row))

    def _answer(self, answer: Answer[V], row: V, **details: Any) -> Any:
        return self._responses["Get"](
            **{self._contract.field: self._contract.value(row)},
            partition=answer.partition,
            offset=answer.offset,
            age_seconds=answer.age_seconds,
            stale=answer.stale,
            **details,
        )

    def _multi_get(self, request: Any, _: Any) -> Any:
        found = self._table.get_many(getattr(request, f"{self._key}s"))
        response: Any = self._responses["MultiGet"](unreadable=found.unreadable)
        for key, answer, row in found.rows:
            response.found.add(**{self._key: key}, answer=self._answer(answer, row))
        return response

    def _scan(self, request: Any, _: Any) -> Iterator[Any]:
        field, value = self._contract.field, self._contract.value
        for page in self._table.scan(request):
            response: Any = self._responses["Scan"](
                age_seconds=page.age_seconds, stale=page.stale, unreadable=page.unreadable
            )
            for key, row in page.rows:
                response.rows.add(**{self._key: key, field: value(row)})
            yield response

    async def _watch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        async with aclosing(self._table.watch(request, context)) as changes:
            async for reported in changes:
                change = reported.change
                response: Any = self._responses["Watch"](
                    **{self._key: change.key},
                    partition=change.partition,
                    offset=change.offset,
                    unreadable=reported.unreadable,
                )
                if change.value is not None:
                    _set(response, self._contract.field, self._contract.value(change.value))
                yield response


def _set(message: Any, field: str, value: Any) -> None:
    if message.DESCRIPTOR.fields_by_name[field].message_type is None:
        setattr(message, field, value)
    else:
        getattr(message, field).CopyFrom(value)
