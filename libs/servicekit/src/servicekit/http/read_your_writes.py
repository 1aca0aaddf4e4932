"""Read your writes: an emitter names a write by a token, and a query with that token waits until its table shows the write."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, Protocol

from fastapi import Depends, Request

from servicekit.http.app import Check
from servicekit.http.problems import Problem, invalid
from streamtable.errors import NotReady
from streamtable.types import Ack, BadToken

HEADER: Final = "Streamtable-Token"
DESCRIPTION: Final = "names this write: a question that carries it in the header Streamtable-Token is answered when it shows the write"
RESPONSE_HEADERS: Final = {HEADER: {"description": DESCRIPTION, "schema": {"type": "string"}}}
"""For OpenAPI: what comes with an answer to one write."""
RESPONSES: Final[Mapping[int | str, dict[str, Any]]] = {
    504: {"description": "The write that Streamtable-Token names does not show here yet; ask again"}
}
"""For OpenAPI: what may come of waiting."""
_GIVEN: Final = "as an emitter gave it: wait until it shows here"
_LIMIT: Final = 1000


class WaitableTable(Protocol):
    """A table that knows which events are in its rows; `streamtable.View` is one."""

    async def wait_for_async(self, ack: Ack, timeout: float) -> None:  # noqa: ASYNC109 - as `streamtable.View`
        """Return when the rows show that event.

        Raises:
            NotReady: not within `timeout` seconds.
            BadToken: there is no such place.
        """
        ...


class ReadYourWrites:
    """Lets queries wait for the writes that they name.

    Args:
        tables: The tables by the topics whose events they are made from.
        seconds: How long one query waits.
        limit: How many queries may wait at a time; they take no threads.
    """

    def __init__(self, tables: Mapping[str, WaitableTable], seconds: float, limit: int = _LIMIT) -> None:
        self._tables = tables
        self._seconds = seconds
        self._limit = limit
        self._waiting = 0

    async def shown(self, token: str) -> None:
        """Wait until the write is shown.

        Raises:
            Problem: 422 for a token that no emitter of these tables has given, 503 if too many wait already, 504 if
                the write does not show in time.
        """
        table, ack = self._named(token)
        if self._waiting >= self._limit:
            detail = "too many questions wait for their writes; ask again later"
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, retry_after=1)
        self._waiting += 1
        try:
            await table.wait_for_async(ack, self._seconds)
        except NotReady:
            detail = "the write does not show here yet; ask again with the same token"
            raise Problem(HTTPStatus.GATEWAY_TIMEOUT, detail, retry_after=1) from None
        except BadToken:
            raise _refused() from None
        finally:
            self._waiting -= 1

    @property
    def dependency(self) -> Any:
        """For routes whose answers may have to wait; they document `RESPONSES` too."""
        return Depends(_Shown(self))

    def _named(self, token: str) -> tuple[WaitableTable, Ack]:
        try:
            ack = Ack.parse(token)
            return self._tables[ack.topic], ack
        except (BadToken, KeyError):
            raise _refused() from None


class _Shown(Check):
    parameters = (
        {
            "name": HEADER,
            "in": "header",
            "required": False,
            "schema": {
                "anyOf": [{"type": "string"}, {"type": "null"}],
                "description": _GIVEN,
                "title": HEADER,
            },
            "description": _GIVEN,
        },
    )

    def __init__(self, writes: ReadYourWrites) -> None:
        self._writes = writes

    async def __call__(self, request: Request) -> None:
        token = request.headers.get(HEADER)
        if token is not None:
            await self._writes.shown(token)


def _refused() -> Problem:
    return invalid(f"header.{HEADER.lower()}", "must be a token that was given for a write that shows here")
