"""A FastAPI application with everything a service has in common: limits, errors, health, metrics, OpenAPI."""

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, BeforeValidator, ConfigDict
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import JSONResponse, Response

from servicekit import problems
from servicekit.guard import Guard, Limits, unavailable
from servicekit.problems import Problem
from streamtable.errors import RetryLater

METRICS_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Strict(BaseModel):
    """Base of request bodies: no conversion of types, no members that are not known, only finite numbers."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


def _plain_digits(value: Any) -> Any:
    if isinstance(value, str) and not (value.isascii() and value.isdigit() and len(value) <= len(str(2**63))):
        raise ValueError("must be a number in plain digits")
    return value


Digits = Annotated[int, BeforeValidator(_plain_digits)]
"""A whole number in a query: ASCII digits only, where pydantic would take "1.0", " 1" and full-width ones too."""


def only(*names: str) -> Any:
    """A dependency that refuses query parameters other than these, and repeated ones.

    A parameter with a typing error would else be ignored in silence, and of two equal ones the last would win.
    """
    known = ", ".join(names) or "none"

    def check(request: Request) -> None:
        given = [name for name, _ in request.query_params.multi_items()]
        if not set(given) <= set(names):
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
    limits: Limits | None = None,
    docs: bool = False,
    middleware: Sequence[Middleware] = (),
) -> FastAPI:
    """Make an application with `/livez`, `/readyz`, `/metrics` and `/openapi.json`; the caller adds its routes.

    Handlers written as plain functions run in worker threads and may block. `streamtable.errors.RetryLater` out of a
    handler becomes 503 with Retry-After, `Problem` what it says, any other exception 500 with a fixed text.

    Args:
        title: of the API, for OpenAPI.
        version: of the API.
        ready: whether the service can answer; asked by `/readyz`.
        metrics: the Prometheus text format; asked by `/metrics`.
        description: for OpenAPI.
        limits: what a request may cost; default `Limits()`.
        docs: serve the interactive pages `/docs` too (they load scripts from elsewhere).
        middleware: further layers inside the guard, the first one outermost.
    """
    app = FastAPI(
        title=title,
        version=version,
        description=description,
        docs_url="/docs" if docs else None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        redirect_slashes=False,
        middleware=[Middleware(Guard, limits=limits or Limits()), *middleware],
    )
    _add_health(app, ready, metrics)
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(RetryLater, _on_retry_later)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign] # FastAPI's documented way to extend it
    return app


def _add_health(app: FastAPI, ready: Callable[[], bool], metrics: Callable[[], bytes]) -> None:
    def livez() -> Response:
        return JSONResponse({"status": "alive"})

    def readyz() -> Response:
        if not ready():
            raise unavailable("not ready yet")
        return JSONResponse({"status": "ready"})

    def metrics_page() -> Response:
        return Response(metrics(), media_type=METRICS_MEDIA_TYPE)

    for path, page in (("/livez", livez), ("/readyz", readyz), ("/metrics", metrics_page)):
        app.add_api_route(path, page, methods=["GET"], include_in_schema=False)


def _on_problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return error.response()


def _on_retry_later(_: Request, __: Exception) -> Response:
    return unavailable().response()


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
    """FastAPI's document, with our errors in place of its own."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        schemas["Problem"] = problems.SCHEMA
        content = {problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
        for path in document.get("paths", {}).values():
            for operation in path.values():
                responses = operation["responses"]
                responses.pop("422", None)
                responses["default"] = {"description": "An error", "content": content}
        app.openapi_schema = document
    return app.openapi_schema
