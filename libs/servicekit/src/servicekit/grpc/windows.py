"""Calls for the windows of one key in a range of time."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from servicekit.grpc.errors import invalid
from servicekit.grpc.table import USER_IDS, KeyRules
from servicekit.tables.protocol import STALE_SECONDS, WindowTable, age_seconds

V = TypeVar("V")
TIME_MS_MAX = 2**53 - 1  # the same maximum as in REST


@dataclass(frozen=True)
class WindowCall:
    """A method of a service that lists windows.

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


class WindowsRequest(Protocol):
    """The common fields of the services' request messages for windows."""

    @property
    def since_ms(self) -> int: ...
    @property
    def until_ms(self) -> int: ...


@dataclass(frozen=True)
class GrpcWindows(Generic[V]):
    """The implementation of a method that lists windows.

    Attributes:
        call: The method.
        table: The windowed table.
        row: Returns the fields of a row.
    """

    call: WindowCall
    table: WindowTable[V]
    row: Callable[[V], dict[str, Any]]

    def fields(self, request: WindowsRequest) -> dict[str, Any]:
        """Return the fields of the response.

        Raises:
            CallRefused: The key or the time range of the request is invalid.
            NotReady: The copy of the table is being loaded.
        """
        keys = self.call.keys
        try:
            key = keys.check(getattr(request, keys.field))
        except ValueError as error:
            raise invalid(keys.field, str(error)) from None
        for name in ("since_ms", "until_ms"):
            if not 0 <= getattr(request, name) <= TIME_MS_MAX:
                raise invalid(name, f"0 to {TIME_MS_MAX}")
        age = age_seconds(self.table)  # not before the copy is complete
        found = self.table.windows(key, request.since_ms, request.until_ms or TIME_MS_MAX)
        windows = [
            {"start_ms": window.start_ms, "end_ms": window.end_ms, **self.row(row)} for window, row in found
        ]
        return {
            "windows": windows,
            "age_seconds": age,
            "stale": age > STALE_SECONDS,
            "unreadable": found.unreadable,
        }
