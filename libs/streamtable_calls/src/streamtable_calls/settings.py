"""The settings that a `Call` or a retried input declares, for those who run it."""

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
        _checked(self, f"call {self.name!r}", ("at_once", "batch", "pending_max", "breaker"))
        if self.timeout <= timedelta(0) or self.batch_within < timedelta(0):
            raise GraphError(
                f"call {self.name!r} has timeout={self.timeout} and batch_within={self.batch_within}: give times"
            )


@dataclass(frozen=True)
class RetrySettings:
    """The arguments of `retried`; see there. Raises `GraphError` for those that make no sense."""

    name: str
    retry: Retry
    order: Literal["key", "none"]
    pending_max: int

    def __post_init__(self) -> None:
        _checked(self, f"the retried input {self.name!r}", ("pending_max",))


def _checked(settings: CallSettings | RetrySettings, of: str, counts: tuple[str, ...]) -> None:
    if settings.order not in {"key", "none"}:
        raise GraphError(f"{of} has order={settings.order!r}: give 'key' or 'none'")
    for what in counts:
        given = getattr(settings, what)
        if given is not None and given < 1:
            raise GraphError(f"{of} has {what}={given!r}: give at least 1")
