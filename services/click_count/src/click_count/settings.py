"""The settings of click counting: variables that begin with CLICK_COUNT_."""

from dataclasses import field
from typing import ClassVar

from contracts.event_time import MAX_AHEAD_SECONDS
from servicekit.process.edge_settings import ExistingFile
from servicekit.process.service_settings import AheadInFlow, ServiceSettings


class ClickSettings(ServiceSettings):
    """Settings of click counting.

    Attributes:
        windows: The name of the flow with the windowed tables, if they are served.
        lake: The place of the files that `sinks` writes.
        query_address: `host:port` where other processes reach this processor, or this service with `--over shards`, at its
            STREAMTABLE_GRPC_ADDRESS; `:port`: at the host name of this machine. None: a processor answers no queries.
        query_key: The key that `--over` shows to the processes it asks.
        query_authorities_file: Certificates of their authorities; None: they are asked in plain text.
        query_server_name: The name that their certificates must have; None: the host of its address.
    """

    env_prefix: ClassVar[str] = "CLICK_COUNT_"

    group: str = "click-count"
    max_ahead_seconds: AheadInFlow = MAX_AHEAD_SECONDS
    windows: str | None = None
    lake: str | None = None
    query_address: str | None = None
    query_key: str | None = field(default=None, repr=False)
    query_authorities_file: ExistingFile | None = None
    query_server_name: str | None = None
