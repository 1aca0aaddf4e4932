"""URLs as keys in requests, as pydantic checks them and OpenAPI describes them."""

from typing import Annotated, Any, Final

from fastapi import Query
from pydantic import AfterValidator, Field

from servicekit.http.problems import invalid
from servicekit.http.table_api import KeyParameter
from servicekit.tables.urls import URL_CHARACTERS_MAX, url, url_prefix

_SCHEMA: Final[dict[str, Any]] = {
    "minLength": 1,
    "maxLength": URL_CHARACTERS_MAX,
    "pattern": r"^[^\u0000-\u001f\u007f-\u009f\ufffd]+$",
}
_DESCRIPTION: Final = (
    "1 to 2048 characters, compared one by one: `foo.com` and `https://foo.com/` are two URLs"
)


def url_of_query(text: str) -> str:
    """Return the URL in a query parameter. Raises a `Problem` of status 422 like those for other parameters."""
    try:
        return url(text)
    except ValueError as error:
        raise invalid("query.url", str(error)) from None


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
_PREFIX_CHARACTERS_MAX: Final = (
    URL_CHARACTERS_MAX // 2
)  # an address holds it beside the cursor of the longest URL
UrlPrefix = Annotated[
    str,
    AfterValidator(url_prefix),
    Query(max_length=_PREFIX_CHARACTERS_MAX, description="only URLs with this prefix"),
]
URL: Final = KeyParameter("url", UrlQuery, url_of_query, "url", UrlPrefix)
