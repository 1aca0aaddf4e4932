"""The request and response models of the REST services, for OpenAPI."""

from typing import Annotated, Final
from uuid import UUID

from pydantic import BaseModel, Field

from servicekit.http.app import Strict
from servicekit.http.emitter_api import accepted_model
from servicekit.http.fields import CANONICAL_UUID, LINE, LINE_SCHEMA, TIME_MS
from servicekit.http.user_ids import UserId
from user_status.domain import STATUS_CHARACTERS_MAX


class NewStatus(Strict):
    """A new status of a user."""

    status: Annotated[
        str,
        Field(
            min_length=1,
            max_length=STATUS_CHARACTERS_MAX,
            json_schema_extra=LINE_SCHEMA,
            examples=["at lunch"],
        ),
        LINE,
    ]
    id: Annotated[
        UUID | None,
        CANONICAL_UUID,
        Field(
            description="the id of the update, which identifies a repeated request; send `at` with it. Default: "
            "a new one"
        ),
    ] = None
    at: Annotated[
        int | None,
        TIME_MS,
        Field(
            description="the time of the update, in milliseconds since 1970; the latest update applies, in whatever "
            "order they arrive, and of two with the same time the greater `id`. Default: now"
        ),
    ] = None


class StatusUpdate(NewStatus):
    """A new status with its user."""

    user_id: UserId


AcceptedUpdates: Final = accepted_model("AcceptedUpdates", "The updates of a list, in its order.")


class Status(BaseModel):
    """The latest status of a user, by event time."""

    text: str
    at: Annotated[int, Field(description="the time of the update, in milliseconds since 1970")]
    id: Annotated[str, Field(description="the id of the update")]
    clicks: Annotated[int, Field(description="the click count of the user when the update was processed")]


class UserRow(BaseModel):
    """A user with the rows of both tables: at least one of status and clicks is not null."""

    user_id: str
    status: Annotated[Status | None, Field(description="null: the user has no status")]
    clicks: Annotated[int | None, Field(description="the present click count; null: the user has no clicks")]


class Place(BaseModel):
    """The position and the age of the copy of one table."""

    partition: int
    offset: Annotated[int, Field(description="the answer is current up to this offset of the partition")]
    age_seconds: Annotated[
        float, Field(description="seconds since this replica was last up to date with the broker")
    ]
    stale: Annotated[
        bool, Field(description="true if the broker does not respond: newer rows may be missing")
    ]


class Places(BaseModel):
    """The position and the age of the copies of both tables."""

    status: Place
    clicks: Place


class UserAnswer(UserRow):
    """A user, with the positions of the rows in the tables."""

    tables: Places


class Age(BaseModel):
    """The age of the copy of a table: its oldest partition's age."""

    age_seconds: float
    stale: bool


class Ages(BaseModel):
    """The ages of the copies of both tables."""

    status: Age
    clicks: Age


class UserPage(BaseModel):
    """Users in the order of their ids' UTF-8 bytes."""

    items: list[UserRow]
    next: Annotated[str | None, Field(description="cursor of the next page; null on the last")]
    tables: Ages
    unreadable: Annotated[
        int, Field(description="number of users skipped because a row in one of the tables cannot be decoded")
    ] = 0
