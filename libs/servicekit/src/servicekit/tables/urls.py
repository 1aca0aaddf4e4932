"""The validation of URLs as keys, in calls and REST requests."""

import unicodedata
from typing import Final

URL_CHARACTERS_MAX: Final = 2048
_RULE: Final = "must not contain control characters, half characters and U+FFFD"


def url(text: str) -> str:
    """Return the text if it is a valid key for a URL. The syntax of URLs is not checked: links are written in many ways.

    Raises:
        ValueError: It is invalid; the message states the rule and does not quote the text.
    """
    if not text:
        raise ValueError(f"must have 1 to {URL_CHARACTERS_MAX} characters")
    return url_prefix(text)


def url_prefix(text: str) -> str:
    """Return the text if a URL can begin with it; an empty text is valid. Raises `ValueError` like `url`."""
    if len(text) > URL_CHARACTERS_MAX:
        raise ValueError(f"must have at most {URL_CHARACTERS_MAX} characters")
    if any(unicodedata.category(c) in {"Cc", "Cs"} or c == "\ufffd" for c in text):
        raise ValueError(_RULE)
    return text
