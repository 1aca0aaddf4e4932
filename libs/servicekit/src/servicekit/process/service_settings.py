"""The settings of one service: variables that begin with its name."""

from dataclasses import field
from typing import Annotated

from contracts.event_time import MAX_AHEAD_SECONDS
from servicekit.http.cursors import SECRET_BYTES_MIN
from streamtable.base.environment import EnvironmentSettings, Flag, seconds


def _secret(text: object) -> object:
    if not isinstance(text, str) or len(text.encode()) < SECRET_BYTES_MIN:
        raise ValueError(f"at least {SECRET_BYTES_MIN} bytes")
    return text


AheadInFlow = Annotated[float, seconds(0, 3600)]
"""The field `max_ahead_seconds` of a service with a flow, which handles no event that is more than an hour ahead."""


class ServiceSettings(EnvironmentSettings):
    """Settings of a service; a subclass defines the prefix of its variables.

    Attributes:
        group: The name of the group whose table is kept or read; a second version of the group needs another name.
        cursor_secret: Signs cursors; the same in all replicas of the query service. None: a random one, so that
            cursors are valid for this process only.
        docs: Whether the interactive pages `/docs` are served.
        reflection: Whether server reflection describes the gRPC services to every caller.
        wait_seconds: The maximum time that a query waits for the write that its token names.
        max_ahead_seconds: The maximum by which an event time may be ahead of the service's clock in a request, and of
            the record's timestamp in a processor.
    """

    group: str
    cursor_secret: Annotated[str, _secret] | None = field(default=None, repr=False)
    docs: Flag = False
    reflection: Flag = False
    wait_seconds: Annotated[float, seconds(0, 8)] = 5.0  # a request is answered within 10
    max_ahead_seconds: Annotated[float, seconds(0, 86_400)] = MAX_AHEAD_SECONDS
