"""Browser protections: requests for a foreign host, and requests made by pages of other sites, are rejected."""

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from starlette.types import Scope

from servicekit.http.problems import Problem
from streamtable.base.hosts import OwnHosts, host_name

HOSTS_VARIABLE: Final = "SERVICEKIT_HOSTS"
_READS: Final = frozenset({"GET", "HEAD"})
_OWN_SITES: Final = frozenset({"same-origin", "none"})  # none: the user entered the address
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class BrowserRules:
    """The rules for requests of browsers. Programs send neither a foreign `Host` nor an `Origin`.

    Attributes:
        hosts: The hosts that the server answers to. Pages of the names in them may also write.
        reads: Whether reads by pages of other sites are rejected too. Otherwise a browser sends them but hides the
            response from the page, as responses allow no other origin.
    """

    hosts: OwnHosts = field(default_factory=OwnHosts)
    reads: bool = False

    def check_host(self, scope: Scope) -> None:
        """Reject a request for another host with 421."""
        server = scope.get("server")
        if not self.hosts.include(_header(scope, b"host"), server[0] if server else None):
            detail = f"the server does not answer to this host name: list it in {HOSTS_VARIABLE} if it is one of its own"
            raise Problem(HTTPStatus.MISDIRECTED_REQUEST, detail)

    def check_origin(self, scope: Scope) -> None:
        """Reject a write, or a read where `reads` is set, that a page of another site makes, with 403."""
        if scope["method"] in _READS and not self.reads:
            return
        origin = _header(scope, b"origin")
        if origin is not None:
            own = self._is_own(origin, _header(scope, b"host"))
        else:
            own = (_header(scope, b"sec-fetch-site") or "none") in _OWN_SITES
        if not own:
            detail = f"a page of another site asks for this: list its host name in {HOSTS_VARIABLE} if it may"
            raise Problem(HTTPStatus.FORBIDDEN, detail)

    def _is_own(self, origin: str, host: str | None) -> bool:
        scheme, found = origin.partition("://")[0].lower(), _authority(origin)
        if found is None:
            return False  # `null`: the browser does not reveal the page's site
        port = _DEFAULT_PORTS.get(scheme)
        same = host is not None and found == _authority(f"{scheme}://{host}")
        return port is not None and (same or self.hosts.names_include(found[0]))


def _authority(url: str) -> tuple[str, int | None] | None:
    try:
        split = urlsplit(url)
        port = split.port
    except ValueError:
        return None
    name = host_name(split.netloc)
    return None if name is None else (name, port or _DEFAULT_PORTS.get(split.scheme))


def _header(scope: Scope, name: bytes) -> str | None:
    for header, value in scope["headers"]:
        if header == name:
            return str(value, "latin-1")
    return None
