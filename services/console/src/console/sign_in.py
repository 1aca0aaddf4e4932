"""Sign-in for browsers, which do not send `Authorization`: a URL with a code that is valid once starts a session."""

import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

import structlog
from starlette.requests import Request, cookie_parser
from starlette.responses import RedirectResponse, Response

from servicekit.auth.rate_limit import RateLimiter, peer_name
from servicekit.http.problems import Problem

log = structlog.get_logger()
PARAMETER: Final = "code"
RANDOM_BYTES: Final = 32
SESSION_SECONDS: Final = 12 * 3600.0
SESSIONS_MAX: Final = 256
_GUESSES_A_SECOND: Final = 0.1
_GUESSES_AT_ONCE: Final = 10


class SignIn:
    """Sessions of browsers, each with an id of its own: neither the token nor the code can be learned from a cookie.

    A code is valid once, so that one in a log or in a browser's history is of no use; a new one is announced after each use.

    Args:
        name: The prefix of the cookie's name. The port is appended: cookies are shared by all ports of a host, so a second
            console would overwrite the cookie of the first.
        token: The credential that a session stands for; programs send it as `Authorization`.
        announce: Called with each new code.
        secure: Whether browsers reach the service over TLS: then the cookie is sent to this host over TLS alone, to no
            other port's plain HTTP (`__Host-`).
    """

    def __init__(self, name: str, token: str, announce: Callable[[str], None], *, secure: bool) -> None:
        self.token = token
        self._name = name
        self._announce = announce
        self._secure = secure
        self._guesses = RateLimiter(_GUESSES_A_SECOND, _GUESSES_AT_ONCE)
        self._sessions: OrderedDict[str, float] = OrderedDict()  # the end of each, the oldest session first
        self._code = secrets.token_urlsafe(RANDOM_BYTES)

    def start(self) -> None:
        """Announce the first code."""
        self._announce(self._code)

    def credential(self, headers: Mapping[bytes, bytes]) -> str | None:
        """Return the token for a request with the cookie of a session, the cookie if it is of none, None without one."""
        cookies = cookie_parser(headers.get(b"cookie", b"").decode("latin-1"))
        session = cookies.get(self._cookie(headers.get(b"host", b"").decode("latin-1")))
        if session is None:
            return None
        return self.token if self._sessions.get(session, 0.0) > time.monotonic() else session

    def answer(self, request: Request, given: str) -> Response:
        """Redirect to the same address without the code, and start a session if the code is valid.

        Scripts cannot read the cookie, and pages of other sites cannot send it. It lives as long as the browser, and twelve
        hours at most.

        Raises:
            Problem: This address has tried too many invalid codes.
        """
        peer = request.client.host if request.client else None
        answer = RedirectResponse(
            request.url.path, HTTPStatus.SEE_OTHER, headers={"Cache-Control": "no-store"}
        )
        if not hmac.compare_digest(given.encode(), self._code.encode()):
            log.warning("sign-in refused", peer=peer)
            if not self._guesses.take(peer_name(peer)).allowed:
                raise Problem(
                    HTTPStatus.TOO_MANY_REQUESTS, "too many invalid codes; try later", retry_after=10
                )
            return answer
        self._code = secrets.token_urlsafe(RANDOM_BYTES)
        session = secrets.token_urlsafe(RANDOM_BYTES)
        self._sessions[session] = time.monotonic() + SESSION_SECONDS
        if len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        name = self._cookie(request.headers.get("host", ""))
        answer.set_cookie(name, session, httponly=True, samesite="strict", secure=self._secure)
        log.info("signed in", peer=peer)
        self._announce(self._code)
        return answer

    def _cookie(self, host: str) -> str:
        if self._secure:
            return f"__Host-{self._name}"
        port = host.rpartition(":")[2]
        return f"{self._name}-{port}" if port.isdecimal() and port.isascii() else self._name
