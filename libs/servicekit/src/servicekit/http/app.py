"""Builds a FastAPI application with the parts that all services share: limits, errors, health, metrics, OpenAPI."""

import json
import math
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from anyio import CapacityLimiter
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from servicekit.auth.access import Admission, Forbidden, TooOften
from servicekit.auth.authentication import Unauthenticated
from servicekit.auth.proxies import NO_PROXIES, TrustedProxies
from servicekit.http import openapi, problems
from servicekit.http.audit import Audit, AuditTrail, remember_caller
from servicekit.http.forwarded import Forwarded
from servicekit.http.guard import PROBES, Admit, Guard, RequestLimits
from servicekit.http.metrics import HttpMetrics, Measure
from servicekit.http.origins import BrowserRules
from servicekit.http.problems import Problem, unavailable
from servicekit.http.threads import in_thread, run_in_thread
from servicekit.http.tracing import Trace
from servicekit.streams import STILL_VALID
from servicekit.tracing import ServerTracer
from streamtable.errors import RetryLater, StreamtableError

METRICS_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class HttpEdge:
    """The layers between the network and an application.

    Attributes:
        admission: Authentication and rate limits; default: none.
        measured: The metrics; None: requests are not measured.
        metrics_public: Whether `/metrics` needs no credential, like `/livez` and `/readyz`.
        tracer: Makes a span for each request; None: there are no spans.
        public: Further paths that need no credential, such as the static files of a page.
        docs: Whether the interactive page `/docs` is served too, which loads scripts from a CDN and needs no credential.
        browsers: The rules for the hosts and origins of requests. Health probes may name any host.
        session: Returns the credential of a request without `Authorization`, from its other headers, such as a cookie; None if
            there is none.
        read_scope: The scope that reads need.
        write_scope: The scope that writes need.
        audit: The audit trail of requests; None: there is none.
        proxies: The proxies whose header `Forwarded` names the caller.
    """

    admission: Admission = field(default_factory=Admission)
    measured: HttpMetrics | None = None
    tracer: ServerTracer | None = None
    metrics_public: bool = True
    docs: bool = False
    public: frozenset[str] = frozenset()
    browsers: BrowserRules = field(default_factory=BrowserRules)
    session: Callable[[Mapping[bytes, bytes]], str | None] = lambda _: None
    read_scope: str = "read"
    write_scope: str = "write"
    audit: AuditTrail | None = None
    proxies: TrustedProxies = NO_PROXIES


class Strict(BaseModel):
    """Base of request bodies: no conversion of types, no unknown members, only finite numbers."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


def _plain_digits(value: Any) -> Any:
    if isinstance(value, str) and not (value.isascii() and value.isdigit() and len(value) <= len(str(2**63))):
        raise ValueError("must be a number in plain digits")
    return value


PLAIN_DIGITS = BeforeValidator(_plain_digits)
"""Accepts ASCII digits only, where pydantic would accept "1.0", " 1" and full-width ones too. For a whole number in a query:
`Annotated[int, Query(ge=1, le=9), PLAIN_DIGITS]`, in this order, or OpenAPI does not name the bounds.
"""


def only(*names: str) -> Any:
    """Return a dependency that rejects query parameters other than these, and repeated ones.

    Otherwise a misspelt parameter would be ignored silently, and of two with the same name the last would win.
    """

    async def check(request: Request) -> None:
        given = (
            [name for name, _ in request.query_params.multi_items()] if request.scope["query_string"] else []
        )
        if not set(given) <= set(names):
            known = ", ".join(names) or "none"
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"unknown query parameter; known are: {known}")
        if len(set(given)) != len(given):
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "a query parameter is given more than once")

    return Depends(check)


def build_app(
    title: str,
    version: str,
    *,
    ready: Callable[[], bool],
    metrics: Callable[[], bytes],
    description: str = "",
    limits: RequestLimits | None = None,
    edge: HttpEdge | None = None,
    details: Callable[[], Mapping[str, Any]] | None = None,
    not_ready: Callable[[], str] = lambda: "",
) -> FastAPI:
    """Build an application with `/livez`, `/readyz`, `/metrics` and `/openapi.json`; the caller adds its routes.

    Handlers written as plain functions run in worker threads and may block. `streamtable.errors.RetryLater` out of a
    handler becomes 503 with Retry-After, `Problem` its own response, any other exception 500 with a fixed text.

    If callers must authenticate, GET and HEAD need the scope `read` and all other methods `write`; an edge may set
    other scopes.

    Args:
        title: The title of the API, for OpenAPI.
        version: The version of the API.
        ready: Returns whether the service can answer; called by `/readyz`.
        metrics: Returns the metrics in the Prometheus text format; called by `/metrics`.
        description: The description of the API, for OpenAPI.
        limits: The limits of a request; default `RequestLimits()`.
        edge: Authentication, limits and instruments; default `HttpEdge()`.
        details: Returns the state of parts that do not affect readiness; shown by `/readyz`.
        not_ready: Returns the reason why the service is not ready, for `/readyz`; empty if it is not known.
    """
    edge = edge or HttpEdge()
    layers = [Middleware(Guard, limits=limits or RequestLimits(), admit=_admit(edge))]
    if edge.audit is not None:
        layers.insert(0, Middleware(Audit, trail=edge.audit))
    if edge.tracer is not None:
        layers.insert(0, Middleware(Trace, tracer=edge.tracer))
    if edge.measured is not None:
        layers.insert(0, Middleware(Measure, metrics=edge.measured))
    if edge.proxies:
        layers.insert(0, Middleware(Forwarded, proxies=edge.proxies))
    app = FastAPI(
        title=title,
        version=version,
        description=description,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,  # the name in generated clients
        middleware=layers,
    )
    app.state.ready = ready  # for the status of the process too
    app.router.route_class = _StrictRoute
    _add_health(app, ready, metrics, details or dict, not_ready)
    if edge.docs:
        openapi.add_page(app)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign] # FastAPI's documented way to extend it
    return app


class _StrictRequest(Request):
    async def json(self) -> Any:
        try:
            return _strict_json(await self.body())
        except json.JSONDecodeError:
            raise
        except (ValueError, RecursionError) as error:
            raise json.JSONDecodeError("not strict JSON", "", 0) from error


def _strict_json(body: bytes) -> Any:
    """Parse JSON as RFC 7493 requires; Python's parser alone accepts NaN, UTF-16, repeated names and lone surrogates."""
    text = body.decode("utf-8")
    made = json.loads(text, object_pairs_hook=_unique_names, parse_float=_number, parse_constant=_no_number)
    if b"\\u" in body:
        json.dumps(made, ensure_ascii=False).encode()  # fails on a lone surrogate, written as an escape
    return made


class _StrictRoute(APIRoute):
    def __init__(self, path: str, endpoint: Callable[..., Any], **more: Any) -> None:
        super().__init__(path, in_thread(endpoint), **more)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return strict


def _unique_names(members: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(members)
    if len(made) < len(members):
        raise ValueError("a name is repeated")
    return made


def _number(text: str) -> float:
    """Return 1.0 and 1e0 as the integer 1, as JSON Schema does."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("the number is too large")
    return int(value) if value.is_integer() and abs(value) <= 2**53 else value


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _admit(edge: HttpEdge) -> Admit:
    public = PROBES | edge.public
    public |= {"/metrics"} if edge.metrics_public else set()
    public |= {"/docs", "/openapi.json"} if edge.docs else set()

    def admit(scope: Scope) -> Mapping[str, str]:
        path = scope["path"]
        if path not in PROBES:
            edge.browsers.check_host(scope)
        if path in public:
            return {}
        edge.browsers.check_origin(scope)
        headers = dict(scope["headers"])  # the guard has rejected duplicates
        given, key = headers.get(b"authorization"), headers.get(b"x-api-key")
        if key is not None:
            # A proxy and this service could use different ones of two values, so two are rejected.
            given = b"Bearer " + key if given is None else b""
        elif given is None and (credential := edge.session(headers)) is not None:
            given = b"Bearer " + credential.encode("latin-1")
        peer = scope["client"][0] if scope["client"] else None
        needed = edge.read_scope if scope["method"] in {"GET", "HEAD"} else edge.write_scope
        needed = "read" if path == "/metrics" else needed
        try:
            authorization = None if given is None else given.decode("latin-1")
            admitted = edge.admission.admit(authorization, peer, needed)
        except Unauthenticated as error:
            challenge = 'Bearer error="invalid_token"' if error.given else "Bearer"
            headers = {"WWW-Authenticate": challenge}
            raise Problem(HTTPStatus.UNAUTHORIZED, str(error), headers=headers) from None
        except Forbidden as error:
            remember_caller(scope, error.caller.name)
            headers = {"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{error.scope}"'}
            raise Problem(HTTPStatus.FORBIDDEN, str(error), headers=headers) from None
        except TooOften as error:
            raise Problem(
                HTTPStatus.TOO_MANY_REQUESTS, str(error), retry_after=error.retry_after, headers=error.headers
            ) from None
        remember_caller(scope, admitted.caller.name if admitted.caller else None)
        scope[STILL_VALID] = admitted.still_valid if admitted.caller else None
        return admitted.headers

    return admit


def _add_health(
    app: FastAPI,
    ready: Callable[[], bool],
    metrics: Callable[[], bytes],
    details: Callable[[], Mapping[str, Any]],
    not_ready: Callable[[], str],
) -> None:
    # In the event loop, so that it answers while all threads wait, for Kafka for example.
    async def livez() -> Response:
        return JSONResponse({"status": "alive"})

    def readyz() -> Response:
        try:
            is_ready = ready()
        except RetryLater:
            is_ready = False
        except StreamtableError as error:  # a component has stopped for good; the log has the details
            raise unavailable(f"stopped: {error.message}") from None
        if not is_ready:
            raise unavailable(not_ready() or "not ready yet")
        shown = details()
        return JSONResponse({"status": "ready", **({"details": shown} if shown else {})})

    # With a thread of its own, so that an outage can be seen.
    scraping = CapacityLimiter(1)

    async def metrics_page() -> Response:
        return Response(await run_in_thread(metrics, threads=scraping), media_type=METRICS_MEDIA_TYPE)

    for path, page in (("/livez", livez), ("/readyz", readyz), ("/metrics", metrics_page)):
        app.add_api_route(path, page, methods=["GET"], include_in_schema=False)


def _on_invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return problems.of_validation(list(error.errors())).response()


_HTTP_DETAILS = {
    HTTPStatus.NOT_FOUND: "there is nothing at this address",
    HTTPStatus.METHOD_NOT_ALLOWED: "this address does not take this method",
    HTTPStatus.BAD_REQUEST: "the body cannot be read",
}


def _on_http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = _HTTP_DETAILS.get(HTTPStatus(error.status_code), "the request was refused")
    return Problem(error.status_code, detail, headers=error.headers).response()


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        app.openapi_schema = openapi.document(app)
    return app.openapi_schema
