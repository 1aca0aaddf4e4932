"""User ids, the keys of all scenarios: their validation."""

import unicodedata
from typing import Final

USER_ID_CHARACTERS_MAX: Final = 128
_FORBIDDEN: Final = "/\ufffd"
# They change the direction of the surrounding text, so an id with them can look like another one.
_BIDIRECTIONAL: Final = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_FORBIDDEN_CATEGORIES: Final = {"Cc", "Cs"}  # control characters and surrogates


def user_id(text: str) -> str:
    """Return the text if it is a valid user id. Raises `ValueError`.

    An id is part of an address: a slash would split it, and U+FFFD is what undecodable bytes become, so that two
    different ids could become the same one. Ids that look alike but differ in their code points are different.

    Raises:
        ValueError: It is invalid; the message states the rule and does not quote the text.
    """
    if not 1 <= len(text) <= USER_ID_CHARACTERS_MAX:
        raise ValueError(f"must have 1 to {USER_ID_CHARACTERS_MAX} characters")
    if text in {".", ".."}:
        raise ValueError("must not be a dot or two")
    _refuse_forbidden(text)
    return text


def user_id_prefix(text: str) -> str:
    """Return the text if a user id can begin with it; an empty text is valid. Raises `ValueError` like `user_id`."""
    if len(text) > USER_ID_CHARACTERS_MAX:
        raise ValueError(f"must have at most {USER_ID_CHARACTERS_MAX} characters")
    _refuse_forbidden(text)
    return text


def _refuse_forbidden(text: str) -> None:
    if any(c in _BIDIRECTIONAL for c in text):
        raise ValueError("must not contain bidirectional control characters")
    if any(c in _FORBIDDEN or unicodedata.category(c) in _FORBIDDEN_CATEGORIES for c in text):
        raise ValueError("must not contain control characters, half characters, '/' and U+FFFD")
