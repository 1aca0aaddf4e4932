"""User ids in requests, as pydantic checks them and OpenAPI describes them."""

from typing import Annotated, Final

from fastapi import Path
from pydantic import AfterValidator, Field

from servicekit.http.problems import invalid
from servicekit.tables.user_ids import USER_ID_CHARACTERS_MAX, user_id, user_id_prefix


def user_of_path(text: str) -> str:
    """Return the user id in a path. Raises a `Problem` of status 422 like those for other parameters."""
    try:
        return user_id(text)
    except ValueError as error:
        raise invalid("path.user", str(error)) from None


# The rules above, for OpenAPI; the code checks them. Bidirectional control characters were allowed when the documents were
# released, whose patterns stay: the description names them.
_NOT_IN_USER_IDS: Final = r"\u0000-\u001f\u007f-\u009f/\ufffd"
_USER_ID: Final = {
    "minLength": 1,
    "maxLength": USER_ID_CHARACTERS_MAX,
    "pattern": rf"^(?!\.{{1,2}}$)[^{_NOT_IN_USER_IDS}]+$",
}
_DESCRIPTION: Final = (
    "1 to 128 characters, without control characters, bidirectional ones too, '/' and U+FFFD, and not a dot or two. Ids are compared code point "
    "by code point: an 'é' of one code point and one of two make different users."
)
UserId = Annotated[
    str,
    AfterValidator(user_id),
    Field(description=_DESCRIPTION, json_schema_extra={**_USER_ID}, examples=["alice"]),
]
UserPath = Annotated[str, Path(description=_DESCRIPTION, json_schema_extra={**_USER_ID}, examples=["alice"])]
Prefix = Annotated[
    str,
    AfterValidator(user_id_prefix),
    Field(
        description="only users whose id has this prefix",
        json_schema_extra={"maxLength": USER_ID_CHARACTERS_MAX, "pattern": f"^[^{_NOT_IN_USER_IDS}]*$"},
    ),
]
