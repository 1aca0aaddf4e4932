"""Rate limits: a token bucket for each caller, and a limit on the number of callers that are tracked."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address, IPv6Network
from threading import Lock
from typing import Final

CALLERS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Taken:
    """The result of counting a request.

    Attributes:
        allowed: Whether the request is within the limit.
        remaining: The number of requests that the caller may make now.
        retry_seconds: The seconds until the caller may make the next request; 0 if it may now.
        full_seconds: The seconds until the caller may make a whole burst again.
    """

    allowed: bool
    remaining: int
    retry_seconds: float
    full_seconds: float


class RateLimiter:
    """Counts requests by caller. Any thread.

    When there are too many callers, the least recently active ones are dropped and start with a full bucket when they
    return, so memory is bounded. Forged names must be prevented where names are issued.

    Args:
        rate: The sustained rate, in requests per second.
        burst: The number of requests allowed at once, at least 1.
        callers_max: The maximum number of callers that are tracked.
        clock: A monotonic clock, in seconds.

    Raises:
        ValueError: A limit is not positive.
    """

    def __init__(
        self,
        rate: float,
        burst: int,
        *,
        callers_max: int = CALLERS_MAX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not (0 < rate < math.inf and burst >= 1 and callers_max >= 1):
            raise ValueError("rate, burst and the number of callers must be positive")
        self.rate = rate
        self.burst = burst
        self._callers_max = callers_max
        self._clock = clock
        self._lock = Lock()
        self._full_at: OrderedDict[str, float] = OrderedDict()  # when the caller's bucket will be full

    def take(self, caller: str) -> Taken:
        """Count a request of this caller. A rejected one is not counted."""
        with self._lock:
            now = self._clock()
            lacking = max(0.0, self._full_at.get(caller, now) - now) * self.rate
            allowed = lacking + 1 <= self.burst + 1e-9
            if allowed:
                lacking += 1
                self._full_at[caller] = now + lacking / self.rate
            # A rejected request too: a caller that keeps retrying is not dropped, so it does not get a full bucket.
            self._full_at.move_to_end(caller)
            if len(self._full_at) > self._callers_max:
                self._full_at.popitem(last=False)
        return Taken(
            allowed=allowed,
            remaining=max(0, int(self.burst - lacking + 1e-9)),
            retry_seconds=0.0 if allowed else (lacking + 1 - self.burst) / self.rate,
            full_seconds=lacking / self.rate,
        )

    def __len__(self) -> int:
        return len(self._full_at)


def peer_name(host: str | None) -> str:
    """Return the name of a caller known by its address only. A /64 of IPv6 counts as one caller."""
    if host is None:
        return "peer"
    try:
        address = IPv6Address(host)
    except AddressValueError:
        return f"peer {host}"
    if address.ipv4_mapped is not None:
        return f"peer {address.ipv4_mapped}"
    return f"peer {IPv6Network((int(address), 64), strict=False)}"
