"""The calls of the services; each call of click-count follows its no-op counterpart."""

from typing import Final

CLICK_COUNT: Final = (
    "grpc_empty",
    "grpc_get",
    "grpc_empty_multi",
    "grpc_multi_get",
    "rest_empty",
    "rest_get",
)
USER_STATUS: Final = ("user_status_grpc_get", "user_status_rest_get")
