"""The request and response models of the REST services, for OpenAPI."""

from typing import Annotated, Final
from uuid import UUID

from pydantic import AfterValidator, BaseModel, Field

from servicekit.http.app import Strict
from servicekit.http.emitter_api import accepted_model
from servicekit.http.fields import CANONICAL_UUID, LINE_SCHEMA, TIME_MS
from servicekit.http.models import answer_model, page_model, top_model, windows_model
from servicekit.http.user_ids import UserId
from servicekit.tables.urls import URL_CHARACTERS_MAX, url

_ID: Final = "the id of the click, which identifies a repeated request; another user's click with it may not count; default: a new one"


class Click(Strict):
    """A user has opened a URL."""

    user_id: UserId
    url: Annotated[
        str,
        Field(
            min_length=1,
            max_length=URL_CHARACTERS_MAX,
            description="without U+FFFD",  # which the released pattern allows
            json_schema_extra=LINE_SCHEMA,
            examples=["https://example.org/"],
        ),
        AfterValidator(url),
    ]
    id: Annotated[
        UUID | None,
        CANONICAL_UUID,
        Field(description=_ID),
    ] = None
    at: Annotated[
        int | None, TIME_MS, Field(description="the event time, in milliseconds since 1970; default: now")
    ] = None


AcceptedClicks: Final = accepted_model("AcceptedClicks", "The clicks of a list, in its order.")


class UserCount(BaseModel):
    """A user's clicks."""

    user_id: str
    count: int


UserCountAnswer: Final = answer_model(
    "UserCountAnswer", "A user's clicks, with their position in the table.", UserCount, "clicks"
)
UserCountPage: Final = page_model(
    "UserCountPage", "Users in the order of their ids' UTF-8 bytes.", UserCount, "clicks"
)
TopUsers: Final = top_model("TopUsers", "The users with the most clicks, highest first.", UserCount, "clicks")


class ClickCount(BaseModel):
    """The clicks in a window of time."""

    count: int


UserMinutes: Final = windows_model(
    "UserMinutes", "The clicks of a user by minutes, the earliest first; minutes without clicks are omitted.",
    ClickCount, what="clicks",
)  # fmt: skip
UrlHours: Final = windows_model(
    "UrlHours", "The clicks of a URL by hours, the earliest first; hours without clicks are omitted.",
    ClickCount, key="url", what="clicks",
)  # fmt: skip
