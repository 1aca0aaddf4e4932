"""The request and response models of the REST service, for OpenAPI."""

from typing import Annotated
from uuid import UUID

from pydantic import AfterValidator, BaseModel, Field

from messaging.domain import TEXT_CHARACTERS_MAX, WORD_CHARACTERS_MAX, folded
from servicekit.http.app import Strict
from servicekit.http.fields import CANONICAL_UUID, LINE, LINE_SCHEMA
from servicekit.http.user_ids import UserId

_REPLACEMENT_CHARACTERS_MAX = 100


class NewMessage(Strict):
    """A message from one user to another."""

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
        Field(description="the id of the message, which identifies a repeated request. Default: a new one"),
    ] = None


class NewBlock(Strict):
    """A recipient blocks a sender, or removes the block."""

    sender: UserId
    recipient: UserId
    blocked: Annotated[bool, Field(description="false removes the block")] = True


class NewTranslation(Strict):
    """The replacement of a word in all messages."""

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
        Field(description="null: the word is no longer replaced"),
    ]


class FeedMessage(BaseModel):
    """A message as it was delivered."""

    id: str
    sender: str
    text: str
    at: Annotated[int, Field(description="the time when it was accepted, in milliseconds since 1970")]


class FeedAnswer(BaseModel):
    """The latest messages of a user, with their position in the table."""

    user_id: str
    messages: Annotated[list[FeedMessage], Field(description="the oldest first")]
    partition: int
    offset: Annotated[
        int, Field(description="the answer is current up to this offset in the table's partition")
    ]
    age_seconds: Annotated[
        float, Field(description="seconds since this replica was last up to date with the broker")
    ]
    stale: Annotated[
        bool, Field(description="true if the broker does not respond: newer messages may be missing")
    ]
