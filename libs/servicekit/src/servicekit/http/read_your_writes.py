"""Read your writes: an emitter names a write by a token, and a query with that token waits until its table shows the write."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Final, Protocol

from fastapi import Depends, Header, Request

from servicekit.http.problems import Problem, invalid
from streamtable.base.types import Ack, BadToken
from streamtable.errors import NotReady

HEADER: Final = "Streamtable-Token"
DESCRIPTION: Final = "the token of this write: a query with it in the header Streamtable-Token is answered once the table shows the write"
RESPONSE_HEADERS: Final = {HEADER: {"description": DESCRIPTION, "schema": {"type": "string"}}}
"""The response headers of a single write, for OpenAPI."""
RESPONSES: Final[Mapping[int | str, dict[str, Any]]] = {
    504: {"description": "The write named by Streamtable-Token is not in the table yet; retry"}
}
"""The responses when waiting for a write fails, for OpenAPI."""
_GIVEN: Final = "the token of a write, as returned by an emitter: wait until the table shows that write"
_LIMIT: Final = 128
"""Half of the requests that a service works on at a time, `RequestLimits.requests`: other queries and the probes go on."""


class WaitableTable(Protocol):
    """A table that knows which events its rows show; `streamtable.View` is one."""

    async def wait_for_async(self, ack: Ack, timeout: float) -> None:  # noqa: ASYNC109 - as `streamtable.View`
        """Return when the rows show that event.

        Raises:
            NotReady: The event is not shown within `timeout` seconds.
            BadToken: There is no such position.
        """


class ReadYourWrites:
    """Makes queries wait for the writes that they name.

    Args:
        tables: The tables, by the topic whose events they are computed from.
        seconds: The maximum time that a query waits.
        limit: The maximum number of queries that wait at a time; they use no threads.
    """

    def __init__(self, tables: Mapping[str, WaitableTable], seconds: float, limit: int = _LIMIT) -> None:
        self._tables = tables
        self._seconds = seconds
        self._limit = limit
        self._waiting = 0

    async def shown(self, token: str) -> None:
        """Wait until the write is shown.

        Raises:
            Problem: 422 for a token that is not from an emitter of these tables, 503 if too many queries wait already,
                504 if the table does not show the write in time.
        """
        table, ack = self._named(token)
        if self._waiting >= self._limit:
            detail = "too many queries wait for their writes; retry the request later"
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, retry_after=1)
        self._waiting += 1
        try:
            await table.wait_for_async(ack, self._seconds)
        except NotReady:
            detail = "the write does not show here yet; retry the request with the same token"
            raise Problem(HTTPStatus.GATEWAY_TIMEOUT, detail, retry_after=1) from None
        except BadToken:
            raise _refused() from None
        finally:
            self._waiting -= 1

    @property
    def dependency(self) -> Any:
        """Return the dependency of routes that wait for writes; such routes also document `RESPONSES`."""

        async def shown(
            token: Annotated[str | None, Header(alias=HEADER, description=_GIVEN)] = None,
        ) -> None:
            if token is not None:
                await self.shown(token)

        return Depends(shown)

    def _named(self, token: str) -> tuple[WaitableTable, Ack]:
        try:
            ack = Ack.parse(token)
            return self._tables[ack.topic], ack
        except (BadToken, KeyError):
            raise _refused() from None


def _refused(why: str = "must be the token of a write that this table shows") -> Problem:
    return invalid(f"header.{HEADER.lower()}", why)


async def _without_token(request: Request) -> None:
    if HEADER in request.headers:
        raise _refused("this address does not wait for writes: ask without the header")


DOES_NOT_WAIT: Final = Depends(_without_token)
"""The dependency of routes that do not wait: without it, a request that names a write would be answered with the state before it."""
