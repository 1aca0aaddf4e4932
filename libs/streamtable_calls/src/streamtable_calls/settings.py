"""The settings that a `Call` declares, for those who run it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from streamtable import Codec
from streamtable.base.topics import legal_codec
from streamtable.errors import GraphError
from streamtable_calls.retry import RateLimit, Retry


@dataclass(frozen=True)
class CallSettings:
    """The arguments of a `Call`; see there. Raises `GraphError` for those that make no sense."""

    name: str
    function: Callable[[Any], Any]
    request: Codec[Any]
    response: Codec[Any]
    order: Literal["key", "none"]
    at_once: int
    batch: int
    batch_within: timedelta
    timeout: timedelta
    retry: Retry
    rate: RateLimit | None
    pending_max: int
    breaker: int | None

    def __post_init__(self) -> None:
        legal_codec(self.request, "request", f"call {self.name!r}")
        legal_codec(self.response, "response", f"call {self.name!r}")
        if self.order not in {"key", "none"}:
            raise GraphError(f"call {self.name!r} has order={self.order!r}: give 'key' or 'none'")
        for what in ("at_once", "batch", "pending_max", "breaker"):
            given = getattr(self, what)
            if given is not None and given < 1:
                raise GraphError(f"call {self.name!r} has {what}={given!r}: give at least 1")
        if self.timeout <= timedelta(0) or self.batch_within < timedelta(0):
            raise GraphError(
                f"call {self.name!r} has timeout={self.timeout} and batch_within={self.batch_within}: give times"
            )
