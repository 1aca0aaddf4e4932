"""Access control: authentication, scopes and rate limits, the same for REST and gRPC."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from servicekit.auth.authentication import Authenticator, Caller, Unauthenticated, bearer_token
from servicekit.auth.rate_limit import RateLimiter, Taken, peer_name


class Forbidden(Exception):
    """The caller is authenticated and lacks the scope."""

    def __init__(self, scope: str, caller: Caller) -> None:
        super().__init__(f"this needs the scope '{scope}', which the credential does not have")
        self.scope = scope
        self.caller = caller


class TooOften(Exception):
    """The caller has exceeded its rate limit.

    Args:
        taken: The result of counting the request, with the time until the next retry.
        headers: Headers for the answer.
    """

    def __init__(self, taken: Taken, headers: Mapping[str, str]) -> None:
        super().__init__("too many requests; retry the request later")
        self.retry_after = max(1, math.ceil(taken.retry_seconds))
        self.headers = headers


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that was admitted, with its caller.

    Attributes:
        caller: The authenticated caller; None without authentication.
        headers: Headers for the answer: RateLimit and RateLimit-Policy, if there is a limit.
        still_valid: Returns whether the credential would still be admitted, for responses that last; it counts against no
            limit.
    """

    caller: Caller | None
    headers: Mapping[str, str]
    still_valid: Callable[[], bool]


class Admission:
    """Authenticates callers and limits their rate. Any thread.

    Args:
        authenticator: Authenticates callers; None: every caller has all scopes.
        limiter: Counts requests by the caller's name, or by its address without a name; failed attempts count too.
        service: The name of this service, to which a scope may be limited.
    """

    def __init__(
        self,
        authenticator: Authenticator | None = None,
        limiter: RateLimiter | None = None,
        service: str = "",
    ) -> None:
        self._service = service
        self._authenticator = authenticator
        self._limiter = limiter

    def admit(self, authorization: str | None, peer: str | None, scope: str) -> Admitted:
        """Authenticate a request and count it against its caller's rate limit.

        Args:
            authorization: The header `Authorization`, or the gRPC metadata `authorization`.
            peer: The address of the client, without its port.
            scope: The scope that the request needs: `read`, `write`, `console` or `replay`.

        Raises:
            Unauthenticated: The credential is missing or invalid.
            Forbidden: The caller lacks the scope.
            TooOften: The caller has exceeded its rate limit.
        """
        try:
            caller = self._caller(authorization)
        except Unauthenticated:
            self._count(peer_name(peer))
            raise
        headers = self._count(f"caller {caller.name}" if caller is not None else peer_name(peer))
        if caller is not None and not caller.may(scope, self._service):
            raise Forbidden(scope, caller)
        return Admitted(caller, headers, partial(self._allows, authorization, scope))

    def _allows(self, authorization: str | None, scope: str) -> bool:
        try:
            caller = self._caller(authorization)
        except Unauthenticated:
            return False
        return caller is None or caller.may(scope, self._service)

    def _caller(self, authorization: str | None) -> Caller | None:
        if self._authenticator is None:
            return None
        return self._authenticator.authenticate(bearer_token(authorization))

    def _count(self, name: str) -> Mapping[str, str]:
        if self._limiter is None:
            return {}
        taken = self._limiter.take(name)
        window = math.ceil(self._limiter.burst / self._limiter.rate)
        headers = {
            "RateLimit-Policy": f'"caller";q={self._limiter.burst};w={window}',
            "RateLimit": f'"caller";r={taken.remaining};t={math.ceil(taken.full_seconds)}',
        }
        if not taken.allowed:
            raise TooOften(taken, headers)
        return headers
