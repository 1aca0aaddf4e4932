"""The version, limits and reasons of `streamtable.query.v1`, beside proto/query/v1/query.proto."""

from typing import Final

VERSION: Final = 1
KEYS_MAX: Final = 1_000
"""The keys of one request at most."""
REASON: Final = "streamtable-reason"
"""The key of the trailing metadata with the reason of an error: one of the three that follow."""
NOT_ASSIGNED: Final = "not-assigned"
NOT_READY: Final = "not-ready"
WRONG_GROUP: Final = "wrong-group"
