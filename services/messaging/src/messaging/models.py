"""What the REST service takes and gives, as OpenAPI describes it."""

from typing import Annotated
from uuid import UUID

from pydantic import AfterValidator, BaseModel, Field

from messaging.domain import TEXT_CHARACTERS_MAX, WORD_CHARACTERS_MAX, folded
from servicekit.http.app import Strict
from servicekit.http.fields import CANONICAL_UUID, LINE, LINE_SCHEMA
from servicekit.http.user_ids import UserId

_REPLACEMENT_CHARACTERS_MAX = 100


class NewMessage(Strict):
    """What one user writes to another."""

    sender: UserId
    recipient: UserId
    text: Annotated[
        str,
        Field(
            min_length=1, max_length=TEXT_CHARACTERS_MAX, json_schema_extra=LINE_SCHEMA, examples=["hello"]
        ),
        LINE,
    ]
    id: Annotated[
        UUID | None,
        CANONICAL_UUID,
        Field(
            description="names the message, so that a repeated request does not show it twice. Default: a new one"
        ),
    ] = None


class NewBlock(Strict):
    """Whether a recipient wants messages of a sender."""

    sender: UserId
    recipient: UserId
    blocked: Annotated[bool, Field(description="false takes the block back")] = True


class NewTranslation(Strict):
    """What replaces a word in the messages of everybody."""

    word: Annotated[
        str,
        AfterValidator(folded),
        Field(
            description="letters, digits and underscores, in any case",
            json_schema_extra={"minLength": 1, "maxLength": WORD_CHARACTERS_MAX},
            examples=["rain"],
        ),
    ]
    replacement: Annotated[
        Annotated[str, Field(max_length=_REPLACEMENT_CHARACTERS_MAX, json_schema_extra=LINE_SCHEMA), LINE]
        | None,
        Field(description="null: the word stays as it is"),
    ]


class FeedMessage(BaseModel):
    """A message as it was delivered."""

    id: str
    sender: str
    text: str
    at: Annotated[int, Field(description="when it was taken, in milliseconds since 1970")]


class FeedAnswer(BaseModel):
    """The latest messages of a user, and where in the table they stand."""

    user_id: str
    messages: Annotated[list[FeedMessage], Field(description="the oldest first")]
    partition: int
    offset: Annotated[
        int, Field(description="of the table's partition, up to which the answer holds everything")
    ]
    age_seconds: Annotated[
        float, Field(description="seconds since this replica last held all that the broker had")
    ]
    stale: Annotated[
        bool, Field(description="true when the broker does not answer: newer messages may be missing")
    ]
