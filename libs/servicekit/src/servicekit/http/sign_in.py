"""Sign-in for browsers, which do not send `Authorization`: a URL with a token sets a cookie."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from starlette.requests import Request, cookie_parser
from starlette.responses import RedirectResponse, Response

PARAMETER: Final = "token"
TOKEN_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class SignIn:
    """A token that a browser may send as a cookie, and programs like any other credential.

    Attributes:
        name: The prefix of the cookie's name. The port is appended: cookies are shared by all ports of a host, so a
            second console would overwrite the cookie of the first.
        token: The token.
    """

    name: str
    token: str = field(repr=False)

    def credential(self, headers: Mapping[bytes, bytes]) -> str | None:
        """Return the token in a request's cookie, valid or not."""
        cookies = cookie_parser(headers.get(b"cookie", b"").decode("latin-1"))
        return cookies.get(self._cookie(headers.get(b"host", b"").decode("latin-1")))

    def answer(self, request: Request, given: str) -> Response:
        """Redirect to the same address without the token, and set the cookie if the token is valid.

        Scripts cannot read the cookie, and pages of other sites cannot send it. It lives as long as the browser.
        """
        answer = RedirectResponse(
            request.url.path, HTTPStatus.SEE_OTHER, headers={"Cache-Control": "no-store"}
        )
        if hmac.compare_digest(given.encode(), self.token.encode()):
            name = self._cookie(request.headers.get("host", ""))
            answer.set_cookie(name, self.token, httponly=True, samesite="strict")
        return answer

    def _cookie(self, host: str) -> str:
        port = host.rpartition(":")[2]
        return f"{self.name}-{port}" if port.isdecimal() and port.isascii() else self.name
