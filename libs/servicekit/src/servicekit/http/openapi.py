"""The OpenAPI document of an application, with the errors that its guard really returns, and the page that shows it."""

import re
from base64 import b64encode
from hashlib import sha256
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from starlette.requests import Request
from starlette.responses import Response

from servicekit.http import problems

_SCRIPTS: Final = "https://cdn.jsdelivr.net"
_ICON: Final = "https://fastapi.tiangolo.com"
_INLINE: Final = re.compile(r"<script>(.*?)</script>", re.DOTALL)

ALWAYS: Final = {
    HTTPStatus.BAD_REQUEST: "The request is not well formed",
    HTTPStatus.UNAUTHORIZED: "The credential is missing or not valid",
    HTTPStatus.FORBIDDEN: "The caller may not do this",
    HTTPStatus.REQUEST_URI_TOO_LONG: "The address is too long",
    HTTPStatus.MISDIRECTED_REQUEST: "The service does not answer to this host name",
    HTTPStatus.TOO_MANY_REQUESTS: "The caller has exceeded its rate limit; Retry-After says when to retry",
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: "The headers are too large or too many",
    HTTPStatus.INTERNAL_SERVER_ERROR: "The service failed",
    HTTPStatus.SERVICE_UNAVAILABLE: "The service cannot answer at the moment; Retry-After says when to retry",
}
"""Errors that every operation may return."""
WITH_INPUT: Final = {HTTPStatus.UNPROCESSABLE_ENTITY: "The request is not valid; `errors` says where"}
WITH_BODY: Final = {
    HTTPStatus.REQUEST_TIMEOUT: "The body did not arrive in time",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body is too large",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "The body is not uncompressed JSON",
}
_RETRY_AFTER: Final = {
    "Retry-After": {"description": "seconds to wait", "schema": {"type": "integer", "minimum": 1}}
}


def document(app: FastAPI) -> dict[str, Any]:
    """Return FastAPI's document with our errors in place of its own, for each operation those that it may return."""
    made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    components = made.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = problems.SCHEMA
    components["securitySchemes"] = {
        "bearer": {
            "type": "http",
            "scheme": "bearer",
            "description": "An API key, or a token (JWT) of the issuer that the service is set up with.",
        },
        "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    for path in made.get("paths", {}).values():
        for operation in path.values():
            # Alternatives: the settings decide whether a credential is needed.
            operation["security"] = [{}, {"bearer": []}, {"key": []}]
            _add_errors(operation)
    return made


def _add_errors(operation: dict[str, Any]) -> None:
    body = operation.get("requestBody")
    responses = operation["responses"]
    responses.pop("422", None)
    # The guard rejects unknown query parameters, even of operations that have none.
    errors = {**ALWAYS, **WITH_INPUT, **(WITH_BODY if body else {})}
    for status, description in errors.items():
        responses.setdefault(str(status.value), {"description": description})
    for code, response in responses.items():
        if int(code) >= HTTPStatus.BAD_REQUEST:
            schema = {"$ref": "#/components/schemas/Problem"}
            response.setdefault("content", {problems.MEDIA_TYPE: {"schema": schema}})
        if int(code) in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}:
            response["headers"] = _RETRY_AFTER
    operation["responses"] = dict(sorted(responses.items()))


def add_page(app: FastAPI) -> None:
    """Serve `/docs`. Its scripts come from a CDN: its content security policy names that and its own script."""
    page = get_swagger_ui_html(openapi_url="/openapi.json", title=app.title, swagger_ui_parameters=None)
    scripts = _INLINE.findall(bytes(page.body).decode())
    hashes = " ".join(f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in scripts)
    page.headers["Content-Security-Policy"] = (
        f"default-src 'none'; script-src {_SCRIPTS} {hashes}; style-src {_SCRIPTS} 'unsafe-inline'; "
        f"img-src {_ICON} data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"
    )

    async def docs(_: Request) -> Response:
        return page

    app.add_route("/docs", docs, include_in_schema=False)
