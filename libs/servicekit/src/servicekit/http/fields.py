"""Strict types of request members, as pydantic checks them and OpenAPI describes them."""

import unicodedata
from typing import Any, Final
from uuid import UUID

from pydantic import AfterValidator, BeforeValidator, Field

TIME_MS_MAX: Final = 2**53 - 1  # the largest integer that JavaScript's numbers hold exactly


def _no_control_characters(text: str) -> str:
    if any(unicodedata.category(character) == "Cc" for character in text):
        raise ValueError("must not contain control characters")
    return text


LINE: Final = AfterValidator(_no_control_characters)
"""A text without control characters: `Annotated[str, Field(max_length=9, json_schema_extra=LINE_SCHEMA), LINE]`.

Keep this order: after a custom validator, pydantic words length errors as if for lists.
"""

LINE_SCHEMA: Final[dict[str, Any]] = {"pattern": r"^[^\u0000-\u001f\u007f-\u009f]*$"}
"""The JSON schema of `LINE` for OpenAPI."""


def _canonical_uuid(value: object) -> object:
    # Strict models accept no text for a UUID in parsed JSON, and lenient ones accept braces, "urn:uuid:" and bytes.
    if value is None:
        return None
    if isinstance(value, str):
        try:
            parsed = UUID(value)
        except ValueError:
            raise ValueError("must be a UUID") from None
        if str(parsed) == value.lower():
            return parsed
    raise ValueError("must be a UUID")


CANONICAL_UUID: Final = BeforeValidator(_canonical_uuid)
"""Accepts a UUID as text with hyphens, or null, and nothing else: `Annotated[UUID | None, CANONICAL_UUID]`."""

TIME_MS: Final = Field(ge=0, le=TIME_MS_MAX)
"""Bounds of a time in milliseconds since 1970."""
