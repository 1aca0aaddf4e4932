"""What the REST services take and give, as OpenAPI describes it."""

from typing import Annotated, Final
from uuid import UUID

from pydantic import BaseModel, Field

from servicekit.http.app import Strict
from servicekit.http.emitter_api import accepted_model
from servicekit.http.fields import CANONICAL_UUID, LINE, LINE_SCHEMA, TIME_MS
from servicekit.http.user_ids import UserId
from user_status.domain import STATUS_CHARACTERS_MAX


class NewStatus(Strict):
    """What a user says."""

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
            description="names the update, so that a repeated request changes nothing; send `at` with it. Default: a "
            "new one"
        ),
    ] = None
    at: Annotated[
        int | None,
        TIME_MS,
        Field(
            description="when the user said it, in milliseconds since 1970; the latest counts, in whatever order they "
            "come, and of two of one time the greater `id`. Default: now"
        ),
    ] = None


class StatusUpdate(NewStatus):
    """What a user says, with who it is."""

    user_id: UserId


AcceptedUpdates: Final = accepted_model("AcceptedUpdates", "The updates of a list, in its order.")


class Status(BaseModel):
    """What a user said last, by the time of saying it."""

    text: str
    at: Annotated[int, Field(description="when, in milliseconds since 1970")]
    id: Annotated[str, Field(description="of the update")]
    clicks: Annotated[int, Field(description="of the user, counted when the update was processed")]


class UserRow(BaseModel):
    """A user, as far as the tables know them: at least one of status and clicks is not null."""

    user_id: str
    status: Annotated[Status | None, Field(description="null: no status of the user is known")]
    clicks: Annotated[int | None, Field(description="counted by now; null: none are known")]


class Place(BaseModel):
    """How current the copy of one table is."""

    partition: int
    offset: Annotated[int, Field(description="of the table's partition, up to which the answer holds all")]
    age_seconds: Annotated[
        float, Field(description="seconds since this replica last held all that the broker had")
    ]
    stale: Annotated[
        bool, Field(description="true when the broker does not answer: newer rows may be missing")
    ]


class Places(BaseModel):
    """The same of both tables."""

    status: Place
    clicks: Place


class UserAnswer(UserRow):
    """A user, and where in the tables they stand."""

    tables: Places


class Age(BaseModel):
    """How current the copy of a table is: its oldest partition."""

    age_seconds: float
    stale: bool


class Ages(BaseModel):
    """The same of both tables."""

    status: Age
    clicks: Age


class UserPage(BaseModel):
    """Users in the order of their ids' UTF-8 bytes."""

    items: list[UserRow]
    next: Annotated[str | None, Field(description="cursor of the next page; null on the last")]
    tables: Ages
    unreadable: Annotated[
        int,
        Field(description="users who were left out because their row in one of the tables cannot be decoded"),
    ] = 0
