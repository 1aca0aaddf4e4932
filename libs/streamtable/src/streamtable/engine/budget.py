"""The maximum size of one commit: as much as can be sent to the broker in time.

All records of a commit must be acknowledged within seconds, or the broker aborts the transaction. Over a slow link a
commit of the configured size is never acknowledged in time: it would be sent, aborted and sent again for ever. So a process
begins with small commits, doubles their size while they are quick, and quarters it when one did not complete in time. A
commit of one record cannot be made smaller: it gets a longer transaction timeout instead.
"""

from collections.abc import Callable, Iterable, Iterator

import structlog

from streamtable.engine.settings import ProcessorSettings
from streamtable.types import RecordBatch

log = structlog.get_logger()

STEP_SECONDS = 4.0
"""The seconds that flush and commit may take, each. Both end well before the broker aborts the transaction."""

STEP_SECONDS_MAX = 64.0
"""The seconds that each may take for a commit that cannot be made smaller. Readers of its topics wait as long."""

TRANSACTION_STEPS = 2.5
"""The transaction timeout in steps: `transaction.timeout.ms` is 10 s while a step may take 4 s."""

_FIRST_BYTES = 1 << 20
_FIRST_PART = 100
_QUICK_SECONDS = STEP_SECONDS / 4
_SLOW_SECONDS = STEP_SECONDS / 2


class CommitBudget:
    """Limits the size of one commit.

    Args:
        group: Its name, for the log.
        bytes_max: The largest that `bytes` becomes.
        records_max: The largest that `records` becomes.
        small: Begin with commits of one record: the process before this one may have died of a record.

    Attributes:
        bytes: The number of bytes at which a commit is due.
        records: The maximum number of records that are handled before `bytes` is checked; fewer if their outputs are large.
        step_seconds: The seconds that flush and commit may take, each.
    """

    def __init__(self, group: str, bytes_max: int, records_max: int, *, small: bool = False) -> None:
        self._group = group
        self._bytes_max = bytes_max
        self._shrunk = False
        self._records_max = records_max
        self.bytes = 1 if small else min(_FIRST_BYTES, bytes_max)
        self.records = 1 if small else records_max
        self.step_seconds = STEP_SECONDS
        self._held = 0  # records that the next commit holds
        self._part = min(_FIRST_PART, records_max)

    @classmethod
    def of(cls, group: str, settings: ProcessorSettings) -> "CommitBudget":
        """Return the budget of a new process of the group."""
        small = settings.in_hand.left is not None
        return cls(group, settings.commit_bytes, settings.poll_records, small=small)

    @property
    def records_bound(self) -> int | None:
        """Return a limit for work with batches of its own size, after a commit that was too large; else None."""
        return self.records if self._shrunk else None

    @property
    def transaction_seconds(self) -> float:
        """The time after which the broker may abort a transaction (transaction.timeout.ms)."""
        return self.step_seconds * TRANSACTION_STEPS

    def committed(self, seconds: float) -> None:
        """Note that a commit succeeded, and how long it took."""
        self._held = 0
        if seconds < _QUICK_SECONDS:
            self.bytes = min(self.bytes * 2, self._bytes_max)
            self.records = min(self.records * 2, self._records_max)
            self._shrunk = self._shrunk and self.records < self._records_max
            self.step_seconds = STEP_SECONDS
        elif seconds > _SLOW_SECONDS:
            self._shrink(2)

    def failed(self, held: int, seconds: float) -> None:
        """Note that a commit failed. If it took long, its size is the likely cause, and the next ones are smaller.

        If it held one record only, they have more time.

        Args:
            held: About how many bytes it held.
            seconds: The seconds that it took.
        """
        records, self._held = self._held, 0
        if seconds < _SLOW_SECONDS:
            return
        if records == 1:
            self.step_seconds = min(self.step_seconds * 2, STEP_SECONDS_MAX)
        if held:
            self.bytes = min(self.bytes, held)
        if records:
            self.records = min(self.records, records)
        self._shrink(4)
        log.warning(
            "commit failed after a long time, the next ones are smaller",
            group=self._group, seconds=round(seconds, 1), bytes=held, bytes_next=self.bytes, records_next=self.records,
            step_seconds_next=self.step_seconds,
        )  # fmt: skip

    def parts(self, batches: Iterable[RecordBatch], pending: Callable[[], int]) -> Iterator[RecordBatch]:
        """Cut batches into parts that are handled at once, sized by the output of the parts before them.

        Args:
            batches: Records of a poll.
            pending: Returns the bytes that the next commit holds by now.
        """
        for batch in batches:
            begin = 0
            while begin < len(batch):
                before = pending()
                end = min(begin + min(self._part, self.records), len(batch))
                self._held += end - begin
                yield batch if end - begin == len(batch) else batch.part(begin, end)
                self._fit(end - begin, pending() - before)
                begin = end

    def _fit(self, records: int, made: int) -> None:
        """Adjust the size of the next part to the bytes that the last one made; it holds half a commit at most."""
        self._part = min(self._part * 2, self._records_max)
        if made > 0:  # else they were committed meanwhile, or made nothing
            self._part = max(1, min(self._part, self.bytes * records // (2 * made)))

    def _shrink(self, by: int) -> None:
        self._shrunk = True
        self.bytes = max(1, self.bytes // by)
        self.records = max(1, self.records // by)
