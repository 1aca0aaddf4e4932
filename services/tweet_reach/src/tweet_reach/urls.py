"""URLs as keys: what can be one, and how OpenAPI describes it."""

import unicodedata
from typing import Annotated, Any, Final

from fastapi import Query
from pydantic import AfterValidator, Field

from servicekit.grpc.table import KeyRules
from servicekit.http.problems import invalid
from servicekit.http.table_api import KeyParameter
from tweet_reach.domain.rules import URL_CHARACTERS_MAX

_RULE: Final = "must not contain control characters, half characters and U+FFFD"
_SCHEMA: Final[dict[str, Any]] = {
    "minLength": 1,
    "maxLength": URL_CHARACTERS_MAX,
    "pattern": r"^[^\u0000-\u001f\u007f-\u009f\ufffd]+$",
}
_DESCRIPTION: Final = (
    "1 to 2048 characters, compared one by one: `foo.com` and `https://foo.com/` are two URLs"
)


def url(text: str) -> str:
    """Return the text if it can be a URL of a tweet. Any text can: links are written in many ways.

    Raises:
        ValueError: it cannot; the message states the rule and does not quote the text.
    """
    if not text:
        raise ValueError(f"must have 1 to {URL_CHARACTERS_MAX} characters")
    return url_prefix(text)


def url_prefix(text: str) -> str:
    """Return the text if a URL can begin so; an empty text is one. Raises `ValueError` like `url`."""
    if len(text) > URL_CHARACTERS_MAX:
        raise ValueError(f"must have at most {URL_CHARACTERS_MAX} characters")
    if any(unicodedata.category(c) in {"Cc", "Cs"} or c == "\ufffd" for c in text):
        raise ValueError(_RULE)
    return text


def url_of_query(text: str) -> str:
    """The URL that a question names. Raises a `Problem` of status 422 like those for other parameters."""
    try:
        return url(text)
    except ValueError as error:
        raise invalid("query.url", str(error)) from None


URL_KEYS: Final = KeyRules("url", url, url_prefix)
_EXAMPLES: Final = ["https://example.org/"]
Url = Annotated[
    str,
    AfterValidator(url),
    Field(description=_DESCRIPTION, json_schema_extra={**_SCHEMA}, examples=_EXAMPLES),
]
UrlQuery = Annotated[
    str,
    Query(description=f"{_DESCRIPTION}; percent-encoded", json_schema_extra={**_SCHEMA}, examples=_EXAMPLES),
]
URL: Final = KeyParameter("url", UrlQuery, url_of_query, "url")
