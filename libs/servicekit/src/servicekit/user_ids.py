"""The ids of users, which all scenarios share: what can be one, and how OpenAPI describes them."""

import unicodedata
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import Path
from pydantic import AfterValidator, Field

from servicekit.problems import Problem

USER_ID_CHARACTERS_MAX: Final = 128
_FORBIDDEN: Final = "/\ufffd"
_FORBIDDEN_CATEGORIES: Final = {"Cc", "Cs"}  # control characters; surrogates, which are half a character


def user_id(text: str) -> str:
    """Return the text if it can be a user id.

    An id is part of an address: a slash would split it, and U+FFFD is what undecodable bytes become, so that two
    different ids could become the same one. Ids that look alike but differ in their code points are different.

    Raises:
        ValueError: it cannot; the message states the rule and does not quote the text.
    """
    if not 1 <= len(text) <= USER_ID_CHARACTERS_MAX:
        raise ValueError(f"must have 1 to {USER_ID_CHARACTERS_MAX} characters")
    if text in {".", ".."}:
        raise ValueError("must not be a dot or two")
    _refuse_forbidden(text)
    return text


def user_id_prefix(text: str) -> str:
    """Return the text if an id can begin so; an empty text is one. Raises `ValueError` like `user_id`."""
    if len(text) > USER_ID_CHARACTERS_MAX:
        raise ValueError(f"must have at most {USER_ID_CHARACTERS_MAX} characters")
    _refuse_forbidden(text)
    return text


def user_of_path(text: str) -> str:
    """The user id in an address. Raises a `Problem` of status 422 like those for other parameters."""
    try:
        return user_id(text)
    except ValueError as error:
        raise Problem(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "the request is not valid; see the list of errors",
            members={"errors": [{"where": "path.user", "what": str(error)}]},
        ) from None


def _refuse_forbidden(text: str) -> None:
    if any(c in _FORBIDDEN or unicodedata.category(c) in _FORBIDDEN_CATEGORIES for c in text):
        raise ValueError("must not contain control characters, half characters, '/' and U+FFFD")


# The rules above, for OpenAPI; the code is what checks.
_NOT_IN_USER_IDS: Final = r"\u0000-\u001f\u007f-\u009f/\ufffd"
_USER_ID: Final = {
    "minLength": 1,
    "maxLength": USER_ID_CHARACTERS_MAX,
    "pattern": rf"^(?!\.{{1,2}}$)[^{_NOT_IN_USER_IDS}]+$",
}
_DESCRIPTION: Final = (
    "1 to 128 characters, without control characters, '/' and U+FFFD, and not a dot or two. Ids are compared code point "
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
        description="only users whose id begins so",
        json_schema_extra={
            "maxLength": USER_ID_CHARACTERS_MAX,
            "pattern": f"^[^{_NOT_IN_USER_IDS}]*$",
        },
    ),
]
