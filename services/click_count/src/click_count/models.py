"""What the REST services take and give, as OpenAPI describes it."""

from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, Discriminator, Field, Tag

from servicekit.http.app import Strict
from servicekit.http.fields import CANONICAL_UUID, LINE, LINE_SCHEMA, TIME_MS
from servicekit.http.produce import Accepted
from servicekit.http.user_ids import UserId

CLICKS_MAX = 1000
URL_CHARACTERS_MAX = 2048


class Click(Strict):
    """A user has opened a URL."""

    user_id: UserId
    url: Annotated[
        str,
        Field(
            min_length=1,
            max_length=URL_CHARACTERS_MAX,
            json_schema_extra=LINE_SCHEMA,
            examples=["https://example.org/"],
        ),
        LINE,
    ]
    id: Annotated[
        UUID | None,
        CANONICAL_UUID,
        Field(
            description="names the click, so that a repeated request can be recognised; default: a new one"
        ),
    ] = None
    at: Annotated[
        int | None, TIME_MS, Field(description="when, in milliseconds since 1970; default: now")
    ] = None


def _one_or_many(body: object) -> str:
    return "many" if isinstance(body, list) else "one"


Clicks = Annotated[
    Annotated[Click, Tag("one")]
    | Annotated[list[Click], Field(min_length=1, max_length=CLICKS_MAX), Tag("many")],
    Discriminator(_one_or_many),
]


class AcceptedClicks(BaseModel):
    """The clicks of a list, in its order."""

    accepted: list[Accepted]


class Freshness(BaseModel):
    """How current an answer is."""

    age_seconds: Annotated[
        float, Field(description="seconds since this replica last held all that the broker had")
    ]
    stale: Annotated[
        bool, Field(description="true when the broker does not answer: newer clicks may be missing")
    ]


class UserCount(BaseModel):
    """A user's clicks."""

    user_id: str
    count: int


class UserCountAnswer(UserCount, Freshness):
    """A user's clicks, and where in the table they stand."""

    partition: int
    offset: Annotated[int, Field(description="of the table's partition, up to which the answer holds all")]


class UserCountPage(Freshness):
    """Users in the order of their ids' UTF-8 bytes."""

    items: list[UserCount]
    next: Annotated[str | None, Field(description="cursor of the next page; null on the last")]
    unreadable: Annotated[
        int, Field(description="rows that were left out because they cannot be decoded")
    ] = 0


class TopUsers(Freshness):
    """The users with the most clicks, highest first."""

    items: list[UserCount]
    unreadable: Annotated[
        int, Field(description="rows that were left out because they cannot be decoded")
    ] = 0
