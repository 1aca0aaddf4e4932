"""The kinds of keys of tables and their validation, in calls and REST requests."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from servicekit.tables.urls import url, url_prefix
from servicekit.tables.user_ids import user_id, user_id_prefix


@dataclass(frozen=True, slots=True)
class KeyRules:
    """The kind of a table's keys and the limits on them.

    Attributes:
        field: The name of the key's field in gRPC messages; an s is appended for several keys.
        check: Returns a valid key, or raises ValueError with the rule.
        check_prefix: Returns a valid prefix of a key, or raises ValueError with the rule.
    """

    field: str
    check: Callable[[str], str]
    check_prefix: Callable[[str], str]


USER_IDS: Final = KeyRules("user_id", user_id, user_id_prefix)
URLS: Final = KeyRules("url", url, url_prefix)
