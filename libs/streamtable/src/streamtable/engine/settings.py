"""How a processor works, as one frozen value."""

from dataclasses import dataclass

from streamtable.engine.position import Guarantee
from streamtable.errors import ConfigurationError


@dataclass(frozen=True)
class ProcessorSettings:
    """How a processor works.

    Args:
        instance_id: names this process among the group's; stable over restarts, different in each replica. The
            transactional id is made of it, so a second process with the same one fences the first.
        guarantee: exactly once unless said otherwise.
        commit_interval: seconds between two commits while there is work.
        commit_bytes: outputs and changed rows that force a commit earlier.
        poll_records: at most, in one go.
        poll_timeout: seconds to wait for input; bounds how late a commit or a stop may be.
        cache_bytes: decoded rows of all partitions.
        start_timeout: seconds to wait for the broker at start; None waits for ever.
        state_retention: seconds that the state of partitions that left is kept.
    """

    instance_id: str
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    commit_interval: float = 0.2
    commit_bytes: int = 16 * 1024 * 1024
    poll_records: int = 10_000
    poll_timeout: float = 0.05
    cache_bytes: int = 64 * 1024 * 1024
    start_timeout: float | None = None
    state_retention: float = 24 * 3600.0

    def __post_init__(self) -> None:
        for name in ("commit_interval", "commit_bytes", "poll_records", "poll_timeout", "cache_bytes"):
            if not getattr(self, name) > 0:
                raise ConfigurationError(f"{name} must be positive, not {getattr(self, name)!r}")
        if not self.instance_id:
            raise ConfigurationError("instance_id must not be empty")
