"""A client that retries as docs/how-to/send-with-retries.md describes, because a busy machine is slow now and then."""

import json
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, TypeVar
from uuid import uuid4

import httpx

from localkafka.waiting import Deadline

Events = TypeVar("Events", dict[str, Any], list[dict[str, Any]])
_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.2
_TIMEOUT_SECONDS: Final = 20.0
_NOT_NOW: Final = {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}
_PROBES: Final = {"/livez", "/readyz"}  # where 503 is the answer


class Retries(httpx.BaseTransport):
    """Retries requests that failed temporarily, in the service or in the network, for up to a minute.

    These are 503 and 504, other than to probes, and requests without a response: the server may close a kept-alive connection
    at the moment in which it is used again. A write that may have been stored is repeated if each of its events
    has an `id`; see `with_ids`.

    Args:
        inner: The transport that sends each attempt.
    """

    def __init__(self, inner: httpx.BaseTransport) -> None:
        self._inner = inner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        deadline = Deadline(_SECONDS)
        while True:
            try:
                response = self._inner.handle_request(request)
            except httpx.ConnectError:
                raise  # nothing listens there
            except httpx.TransportError:
                if not _is_repeatable(request) or deadline.passed():
                    raise
            else:
                if not _is_for_later(request, response) or deadline.passed():
                    return response
            time.sleep(_PAUSE_SECONDS)

    def close(self) -> None:
        self._inner.close()


def retrying_client(base_url: str, headers: Mapping[str, str] | None = None) -> httpx.Client:
    """Return a client of one service with `Retries`, which sends these headers with each request."""
    transport = Retries(httpx.HTTPTransport())
    return httpx.Client(
        base_url=base_url, headers=dict(headers or {}), timeout=_TIMEOUT_SECONDS, transport=transport
    )


def with_ids(events: Events) -> Events:
    """Return an event or several with an `id` each, so that a service recognises them in a repeated request."""
    if isinstance(events, list):
        return [with_ids(event) for event in events]
    return {"id": str(uuid4()), **events}


def _is_for_later(request: httpx.Request, response: httpx.Response) -> bool:
    if response.status_code not in _NOT_NOW or request.url.path in _PROBES:
        return False
    response.read()  # releases the connection
    return (
        _is_repeatable(request) or "unknown" not in response.json()
    )  # a service that stored nothing lists nothing


def _is_repeatable(request: httpx.Request) -> bool:
    if request.method == "GET":
        return True
    body = json.loads(request.read() or "[]")
    events = body if isinstance(body, list) else [body]
    return bool(events) and all("id" in event for event in events)
