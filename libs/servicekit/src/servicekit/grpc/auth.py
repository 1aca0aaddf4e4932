"""Authentication and rate limits of gRPC calls, by `servicekit.auth.access`."""

from collections.abc import Callable
from typing import Any, Final

import grpc

from servicekit.auth.access import Admission, Forbidden, TooOften
from servicekit.auth.authentication import Unauthenticated
from servicekit.auth.proxies import NO_PROXIES, TrustedProxies
from servicekit.grpc.errors import CallRefused
from servicekit.grpc.guard import Check
from servicekit.grpc.peers import caller_host

_CREDENTIALS: Final = {"authorization": "", "x-api-key": "Bearer "}


def check_callers(admission: Admission, scope: str = "read", proxies: TrustedProxies = NO_PROXIES) -> Check:
    """Return a check for `GrpcServer`.

    The credential is the metadata `authorization` ("Bearer ...") or `x-api-key` (the key alone), and one of them once.

    Args:
        admission: Authenticates callers and limits their rate.
        scope: The scope that all methods of the server need.
        proxies: The proxies whose metadata `forwarded` names the caller.
    """

    def check(path: str, context: Any) -> Callable[[], bool] | None:
        del path
        try:
            admitted = admission.admit(
                _authorization(context.invocation_metadata()), caller_host(context, proxies), scope
            )
        except Unauthenticated as error:
            text = "the credential is not valid or no longer so" if error.given else _SEND
            raise CallRefused(grpc.StatusCode.UNAUTHENTICATED, text) from None
        except Forbidden as error:
            raise CallRefused(grpc.StatusCode.PERMISSION_DENIED, str(error), reason="MISSING_SCOPE") from None
        except TooOften as error:
            code, later = grpc.StatusCode.RESOURCE_EXHAUSTED, error.retry_after
            raise CallRefused(code, str(error), reason="RATE_LIMIT", retry_seconds=later) from None
        return admitted.still_valid if admitted.caller else None

    return check


_SEND: Final = "send a credential in the metadata: authorization: Bearer, or x-api-key"


def _authorization(metadata: Any) -> str | None:
    given: list[tuple[str, str]] = [(name, value) for name, value in metadata or () if name in _CREDENTIALS]
    if not given:
        return None
    name, value = given[0]
    # Components must not differ in which of several values they use, so several are rejected.
    return _CREDENTIALS[name] + value if len(given) == 1 else ""
