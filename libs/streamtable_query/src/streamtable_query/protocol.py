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
ANY_SIZE: Final = ("grpc.max_receive_message_length", -1)
"""The option of callers: gRPC's 4 MiB are less than one row may have, or many. Kafka bounds each row, and `KEYS_MAX` and the size
of pages their number."""
REQUEST_SIZE: Final = ("grpc.max_receive_message_length", 64 << 20)
"""The option of servers: many long keys are more than 4 MiB. A bound, since a request is received before its caller is known."""
