"""What the REST services take and give, as OpenAPI describes it."""

from typing import Annotated
from uuid import UUID

from pydantic import AfterValidator, BaseModel, BeforeValidator, Discriminator, Field, Tag

from click_count.domain import USER_ID_CHARACTERS_MAX, user_id, user_id_prefix
from servicekit.rest import Strict

CLICKS_MAX = 1000
URL_CHARACTERS_MAX = 2048
TIME_MS_MAX = 2**53 - 1  # what JavaScript's numbers hold exactly


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must not contain control characters")
    return text


def _canonical_uuid(value: object) -> object:
    # Strict models take no text for a UUID in parsed JSON, and lenient ones take braces, "urn:uuid:" and bytes.
    if isinstance(value, str):
        try:
            parsed = UUID(value)
        except ValueError:
            raise ValueError("must be a UUID") from None
        if str(parsed) == value.lower():
            return parsed
    raise ValueError("must be a UUID")


UserId = Annotated[
    str,
    AfterValidator(user_id),
    Field(
        description="1 to 128 characters, without control characters, '/' and U+FFFD",
        json_schema_extra={"minLength": 1, "maxLength": USER_ID_CHARACTERS_MAX},
        examples=["alice"],
    ),
]
Prefix = Annotated[
    str,
    AfterValidator(user_id_prefix),
    Field(
        description="only users whose id begins so",
        json_schema_extra={"maxLength": USER_ID_CHARACTERS_MAX},
    ),
]


class Click(Strict):
    """A user has opened a URL."""

    user_id: UserId
    url: Annotated[
        str,
        AfterValidator(_printable),
        Field(min_length=1, max_length=URL_CHARACTERS_MAX, examples=["https://example.org/"]),
    ]
    id: Annotated[
        UUID | None,
        BeforeValidator(_canonical_uuid),
        Field(
            description="names the click, so that a repeated request can be recognised; default: a new one"
        ),
    ] = None
    at: Annotated[
        int | None,
        Field(ge=0, le=TIME_MS_MAX, description="when, in milliseconds since 1970; default: now"),
    ] = None


def _one_or_many(body: object) -> str:
    return "many" if isinstance(body, list) else "one"


Clicks = Annotated[
    Annotated[Click, Tag("one")]
    | Annotated[list[Click], Field(min_length=1, max_length=CLICKS_MAX), Tag("many")],
    Discriminator(_one_or_many),
]


class Accepted(BaseModel):
    """A click that all in-sync replicas of Kafka have acknowledged."""

    id: UUID
    partition: int
    offset: int


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


class TopUsers(Freshness):
    """The users with the most clicks, highest first."""

    items: list[UserCount]
