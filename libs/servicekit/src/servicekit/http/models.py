"""Models of answers about the rows of a table, as OpenAPI describes them."""

from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, Field, create_model

_UNREADABLE = "rows that were left out because they cannot be decoded"


@cache
def freshness(what: str = "rows") -> type[BaseModel]:
    """Return the model of an answer's freshness; `what` may be missing from it."""
    age = Field(description="seconds since this replica was last up to date with the broker")
    stale = Field(description=f"true if the broker does not respond: newer {what} may be missing")
    return create_model(
        "Freshness",
        __doc__="How current an answer is.",
        age_seconds=(Annotated[float, age], ...),
        stale=(Annotated[bool, stale], ...),
    )


def answer_model(name: str, text: str, row: type[BaseModel], what: str = "rows") -> type[BaseModel]:
    """Return the model of one row with its freshness and its place in the table."""
    place = Field(description="the offset in the table's partition up to which the answer is current")
    return create_model(
        name,
        __doc__=text,
        __base__=(row, freshness(what)),
        partition=(int, ...),
        offset=(Annotated[int, place], ...),
    )


def top_model(
    name: str, text: str, row: type[BaseModel], what: str = "rows", **further: Any
) -> type[BaseModel]:
    """Return the model of a ranking of rows; `further` members are given as pydantic's `create_model` takes them."""
    fields: dict[str, Any] = {"items": (list[row], ...), **further}  # type: ignore[valid-type] # pydantic reads it when the model is made
    fields["unreadable"] = (Annotated[int, Field(description=_UNREADABLE)], 0)
    model: type[BaseModel] = create_model(name, __doc__=text, __base__=freshness(what), **fields)
    return model


def page_model(name: str, text: str, row: type[BaseModel], what: str = "rows") -> type[BaseModel]:
    """Return the model of a page of rows."""
    cursor = Field(description="cursor of the next page; null on the last")
    return top_model(name, text, row, what, next=(Annotated[str | None, cursor], ...))


def windows_model(
    name: str, text: str, row: type[BaseModel], key: str = "user_id", what: str = "rows"
) -> type[BaseModel]:
    """Return the model of the windows of one key: each with its bounds and its row."""
    window = _window_model(row)
    definitions: dict[str, Any] = {key: (str, ...), "items": (list[window], ...)}  # type: ignore[valid-type] # as above
    definitions["unreadable"] = (Annotated[int, Field(description=_UNREADABLE)], 0)
    model: type[BaseModel] = create_model(name, __doc__=text, __base__=freshness(what), **definitions)
    return model


@cache
def _window_model(row: type[BaseModel]) -> type[BaseModel]:
    """Return the model of one window; the same for all answers, as a document has one model of a name."""
    start = Field(description="the first millisecond of the window, since 1970")
    end = Field(description="the end of the window, exclusive")
    return create_model(
        f"{row.__name__}Window",
        __doc__=row.__doc__,
        __base__=row,
        start_ms=(Annotated[int, start], ...),
        end_ms=(Annotated[int, end], ...),
    )
