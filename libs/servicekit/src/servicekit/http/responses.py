"""Responses to GET: models as JSON, conditional requests, and the beginning of a page."""

from collections.abc import Mapping
from http import HTTPStatus

from pydantic import BaseModel
from starlette.responses import Response

from servicekit.http.cursors import BadCursor, Cursors
from servicekit.http.problems import Problem


def json_answer(body: BaseModel, headers: Mapping[str, str] | None = None) -> Response:
    """Return the model as JSON, without FastAPI's second validation and conversion row by row."""
    return Response(body.model_dump_json(), headers=headers, media_type="application/json")


def matches(if_none_match: str | None, tag: str) -> bool:
    """Return whether one of the tags in If-None-Match is this one, by weak comparison."""
    if if_none_match is None:
        return False
    given = {part.strip().removeprefix("W/") for part in if_none_match.split(",")}
    return "*" in given or tag.removeprefix("W/") in given


def page_after(cursors: Cursors, query: str, cursor: str | None) -> str | None:
    """Return the position before a page; None for the first. Raises a `Problem` for a cursor of another query."""
    if cursor is None:
        return None
    try:
        return cursors.open(query, cursor)
    except BadCursor as error:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from None
