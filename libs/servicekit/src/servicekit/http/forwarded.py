"""The caller's address behind a trusted proxy (RFC 7239)."""

from starlette.types import ASGIApp, Receive, Scope, Send

from servicekit.auth.proxies import TrustedProxies


class Forwarded:
    """ASGI middleware that replaces a trusted proxy's address by its caller's; it must wrap all middleware that reads it."""

    def __init__(self, app: ASGIApp, proxies: TrustedProxies) -> None:
        self._app = app
        self._proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        if client and self._proxies.trusts(client[0]):
            given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"forwarded"]
            caller = self._proxies.caller(client[0], given)
            if caller != client[0]:
                scope = {**scope, "client": (caller, 0)}
        await self._app(scope, receive, send)
