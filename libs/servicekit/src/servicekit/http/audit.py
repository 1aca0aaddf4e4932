"""The audit trail: a line for each write, each replay and each read of records, rejected requests included."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_CALLER: Final = "servicekit.caller"
_READS: Final = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An entry of the audit trail, about one request.

    Attributes:
        caller: The name of the caller; None: the caller did not authenticate, or the credentials were wrong.
        method: The method.
        path: The path, which may name a topic, a table or a user. Neither the query nor the body is kept.
        peer: The address of the peer, which may be a proxy's.
        status: The status code of the response; None: the caller disconnected before it.
    """

    caller: str | None
    method: str
    path: str
    peer: str | None
    status: int | None


@dataclass(frozen=True, slots=True)
class AuditTrail:
    """The selection of the requests to record, and the sink of the entries.

    Attributes:
        write: Keeps an entry; called in the event loop, so it must not block.
        reads: The path prefixes of reads that are recorded too.
    """

    write: Callable[[AuditEntry], None]
    reads: tuple[str, ...] = ()

    def notes(self, method: str, path: str) -> bool:
        """Return whether a request is recorded."""
        return method not in _READS or path.startswith(self.reads)


class Audit:
    """ASGI middleware around the guard, so that rejected requests are recorded too."""

    def __init__(self, app: ASGIApp, trail: AuditTrail) -> None:
        self._app = app
        self._trail = trail

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._trail.notes(scope["method"], scope["path"]):
            await self._app(scope, receive, send)
            return
        noted = False

        def note(status: int | None) -> None:
            nonlocal noted
            if not noted:
                noted = True
                peer = scope["client"][0] if scope["client"] else None
                caller = scope.get(_CALLER)
                self._trail.write(AuditEntry(caller, scope["method"], scope["path"], peer, status))

        async def observed(message: Message) -> None:
            if message["type"] == "http.response.start":
                note(message["status"])  # not at the end of the response, which a stream may never reach
            await send(message)

        try:
            await self._app(scope, receive, observed)
        finally:
            note(None)


def remember_caller(scope: Scope, name: str | None) -> None:
    """Record the authenticated caller of this request."""
    scope[_CALLER] = name
