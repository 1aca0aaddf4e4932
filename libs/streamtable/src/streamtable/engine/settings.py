"""The settings of a processor, as one frozen value."""

from collections.abc import Callable
from dataclasses import dataclass

from streamtable.base.crash_marker import NOT_NOTED, InHand
from streamtable.base.settings import default_of, legal_instance_id
from streamtable.base.tracing import UNTRACED, Tracer
from streamtable.base.types import Guarantee
from streamtable.engine.calls.handlers import Around
from streamtable.errors import ConfigurationError

_ENDLESS = 1e15


@dataclass(frozen=True)
class ProcessorSettings:
    """The settings of a processor.

    Args:
        instance_id: Names this process among the group's; stable over restarts, different in each replica. The
            transactional id is made of it, so a second process with the same one fences the first.
        guarantee: Exactly once unless said otherwise.
        commit_interval: Seconds between two commits while there is work.
        commit_bytes: Outputs and changed rows that force a commit earlier.
        poll_records: The maximum number of records of one poll.
        poll_timeout: Seconds to wait for input; bounds how late a commit or a stop may be.
        cache_bytes: Decoded rows of all partitions. Changed rows that take a quarter of it force a commit earlier.
        start_timeout: Seconds to wait for the broker at start; None: no limit.
        state_retention: Seconds that the state of partitions that left is kept.
        standby: Keep standby replicas of the partitions that would be assigned to this process if as many others left; True:
            of all partitions.
        stall_timeout: Seconds without progress (a poll, a handled record, a commit of work that is due) after which the
            processor is not ready.
        stall_exit: Seconds without progress after which the process exits with code 75; None: it never does.
        hanging_transaction_timeout: Seconds that partitions wait for a transaction that has not ended before that is
            reported, and the processor is not ready. More than the transactions of all producers may take.
        purge: Whether to delete the records of inputs with `purge=True`, as flows make them, once they are committed.
        by_hand: Whether what works beside the records, such as calls, waits for a test that does its work.
        around: Makes a handler of each handler of the graph, for tracing and the like: `around(handler)` is called once
            for each, and what it returns is called with context and event.
        tracer: Traces batches and commits.
        in_hand: The file that records which records are being handled.
        release: Called when the processor is closed: from then on another process may have its instance id.
    """

    instance_id: str
    guarantee: Guarantee = Guarantee(default_of("guarantee"))  # noqa: RUF009 - a value of an enum
    commit_interval: float = default_of("commit_interval")
    commit_bytes: int = 16 * 1024 * 1024
    poll_records: int = 10_000
    poll_timeout: float = 0.05
    cache_bytes: int = 64 * 1024 * 1024
    start_timeout: float | None = default_of("start_timeout")
    state_retention: float = default_of("state_retention")
    standby: bool | int = False
    stall_timeout: float = default_of("stall_timeout")
    stall_exit: float | None = default_of("stall_exit")
    hanging_transaction_timeout: float = default_of("hanging_transaction_timeout")
    purge: bool = default_of("purge")
    by_hand: bool = False
    around: Around | None = None
    tracer: Tracer = UNTRACED
    in_hand: InHand = NOT_NOTED
    release: Callable[[], object] = bool

    def __post_init__(self) -> None:
        for name in (
            "commit_interval",
            "commit_bytes",
            "poll_records",
            "poll_timeout",
            "cache_bytes",
            "stall_timeout",
            "hanging_transaction_timeout",
        ):
            if not 0 < getattr(self, name) < _ENDLESS:
                raise ConfigurationError(f"{name} must be positive and finite, not {getattr(self, name)!r}")
        if self.stall_exit is not None and not self.stall_timeout <= self.stall_exit < _ENDLESS:
            raise ConfigurationError(
                f"stall_exit={self.stall_exit!r}: give at least stall_timeout, {self.stall_timeout!r} s"
            )
        try:
            legal_instance_id(self.instance_id)
        except ValueError as error:
            raise ConfigurationError(f"instance_id={self.instance_id!r}: expected {error}") from error
