"""Problem documents (RFC 9457): fixed texts that never contain input."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

MEDIA_TYPE = "application/problem+json"


class Problem(Exception):
    """The error response to a request.

    Args:
        status: The status code, 400 to 599.
        detail: A fixed text that names the error and its remedy.
        retry_after: The value of the header `Retry-After`, in seconds.
        headers: Further headers.
        members: Further members of the document, as RFC 9457 allows.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        retry_after: int | None = None,
        headers: Mapping[str, str] | None = None,
        members: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = HTTPStatus(status)
        self.detail = detail
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["Retry-After"] = str(retry_after)
        self.members = dict(members or {})

    def response(self) -> Response:
        """Return the document as an HTTP response."""
        document = {
            "type": "about:blank",
            "title": self.status.phrase,
            "status": self.status.value,
            "detail": self.detail,
            **self.members,
        }
        body = json.dumps(document, allow_nan=False).encode()
        headers = {"Cache-Control": "no-store", **self.headers}
        return Response(body, self.status.value, headers=headers, media_type=MEDIA_TYPE)


def unavailable(detail: str = "the service cannot answer at the moment; retry the request") -> Problem:
    """Return a 503 with `Retry-After`."""
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, retry_after=1)


def overloaded() -> Problem:
    """Return a 503 for a request that no thread has begun to work on."""
    return unavailable("too many requests at once; retry the request")


SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "Problem",
    "description": "An error as RFC 9457 describes it.",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "description": "The fields that are wrong, in a request that was not valid.",
            "items": {
                "type": "object",
                "required": ["where", "what"],
                "properties": {"where": {"type": "string"}, "what": {"type": "string"}},
            },
        },
    },
}
"""The document's JSON schema, for OpenAPI."""

_FIXED = {
    "missing": "is required",
    "extra_forbidden": "has an unknown member",
    "string_type": "must be a string",
    "string_unicode": "must be valid Unicode",
    "int_type": "must be an integer",
    "finite_number": "must be finite",
    "list_type": "must be a list",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "uuid_parsing": "must be a UUID",
    "uuid_type": "must be a UUID",
    "json_invalid": "is not valid JSON",
}
_BOUNDED = {
    "less_than_equal": ("le", "must be at most {}"),
    "greater_than_equal": ("ge", "must be at least {}"),
    "string_too_long": ("max_length", "must have at most {} characters"),
    "string_too_short": ("min_length", "must have at least {} characters"),
    "too_long": ("max_length", "must have at most {} items"),
    "too_short": ("min_length", "must have at least {} items"),
}
_ERRORS_MAX = 10


def of_validation(errors: list[Any]) -> Problem:
    """Return a 422 for pydantic's errors: which of *our* fields is invalid and which of *our* limits it exceeds.

    Pydantic's own messages quote the input, and the location of a member that is not known is the caller's text.
    """
    return _invalid([_field_error(error) for error in errors[:_ERRORS_MAX]])


def invalid(where: str, what: str) -> Problem:
    """Return a 422 for one field of the request; neither text may contain input."""
    return _invalid([{"where": where, "what": what}])


def _invalid(errors: list[dict[str, str]]) -> Problem:
    detail = "the request is not valid; see the list of errors"
    return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail, members={"errors": errors})


def _field_error(error: Mapping[str, Any]) -> dict[str, str]:
    kind = str(error["type"])
    location = list(error["loc"])
    if kind == "extra_forbidden":
        location.pop()
    if kind == "json_invalid":
        location = location[:1]  # the rest is a position in the text
    what = _FIXED.get(kind, "is not valid")
    if kind in _BOUNDED:
        bound, text = _BOUNDED[kind]
        what = text.format(error["ctx"][bound])
    elif kind == "value_error" and isinstance(error["ctx"]["error"], ValueError):
        what = str(error["ctx"]["error"])  # raised by a validator of ours, with a fixed text
    return {"where": ".".join(str(part) for part in location), "what": what}
