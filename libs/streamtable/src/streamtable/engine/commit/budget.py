"""The maximum size of one commit, as much as can be sent to the broker in time, and the time that a commit is given.

All records of a commit must be acknowledged within seconds, or the broker aborts the transaction. Over a slow link a
commit of the configured size is never acknowledged in time: it would be sent, aborted and sent again for ever. So a process
begins with small commits, doubles their size while they are quick, and quarters it when one did not complete in time.

Less work does not help where each request takes long: on an overloaded machine, or far from the broker. A commit is
given the time that the slowest of the last ones took, and twice as much as before after the second failure in a row, or
after the first if it held one record and cannot be made smaller. The transaction timeout rises with it.
"""

from collections.abc import Callable, Iterable, Iterator

import structlog

from streamtable.base.types import RecordBatch
from streamtable.engine.settings import ProcessorSettings

log = structlog.get_logger()

STEP_SECONDS = 4.0
"""The seconds that flush and commit may take, each. Both end well before the broker aborts the transaction."""

STEP_SECONDS_MAX = 64.0
"""The seconds that each may take where commits are slow whatever their size. Readers of its topics wait as long."""

TRANSACTION_STEPS = 2.5
"""The transaction timeout in steps: `transaction.timeout.ms` is 10 s while a step may take 4 s."""

_FIRST_BYTES = 1 << 20
_FIRST_PART = 100
_QUICK_SECONDS = STEP_SECONDS / 4
_SLOW_SECONDS = STEP_SECONDS / 2
# Half of a commit that takes this share of its time is slow for another reason than its size.
_NO_QUICKER = 0.75
_FORGETS = 0.9  # the share of the time that a slow commit has asked for, after each commit that took less


class CommitBudget:
    """Limits the size of one commit.

    Args:
        group: Its name, for the log.
        settings: The settings of the processor: the largest that `bytes` and `records` become. Commits begin with one record
            if records were in hand when the process before this one died: it may have died of one.

    Attributes:
        bytes: A commit is due once this many bytes are pending.
        records: The maximum number of records that are handled before `bytes` is checked; fewer if their outputs are large.
        step_seconds_max: The maximum of `step_seconds`; lower where the broker refuses the transaction timeout.
    """

    def __init__(self, group: str, settings: ProcessorSettings) -> None:
        small = settings.in_hand.left is not None
        self._group = group
        self._bytes_max = settings.commit_bytes
        self._shrunk = False
        self._records_max = settings.poll_records
        self.bytes = 1 if small else min(_FIRST_BYTES, self._bytes_max)
        self.records = 1 if small else self._records_max
        self.step_seconds_max = STEP_SECONDS_MAX
        self._needed = 0.0  # the seconds that a step is to be given
        self._failures = 0  # in a row, those that took long
        self._slow = 0.0  # the seconds of the last commit, if it was halved for them
        self._whatever = 0.0  # the seconds that a commit takes whatever its size
        self._held = 0  # records that the next commit holds
        self._part = min(_FIRST_PART, self._records_max)

    @property
    def records_bound(self) -> int | None:
        """Return a limit for work with batches of its own size, after a commit that was too large; else None."""
        return self.records if self._shrunk else None

    @property
    def step_seconds(self) -> float:
        """The seconds that flush and commit may take, each: 4, 8, 16, 32 or 64, so that it changes rarely."""
        seconds = STEP_SECONDS
        while seconds < self._needed:
            seconds *= 2
        return min(seconds, self.step_seconds_max)

    def committed(self, seconds: float) -> None:
        """Note that a commit succeeded, and how long it took."""
        self._held = self._failures = 0
        self._needed = max(seconds, self._needed * _FORGETS)
        if self._slow and seconds > self._slow * _NO_QUICKER:
            self._whatever = seconds
        self._whatever, self._slow = min(self._whatever, seconds), 0.0
        if seconds - self._whatever < _QUICK_SECONDS:
            self.bytes = min(self.bytes * 2, self._bytes_max)
            self.records = min(self.records * 2, self._records_max)
            self._shrunk = self._shrunk and self.records < self._records_max
        elif seconds - self._whatever > _SLOW_SECONDS:
            self._slow = seconds
            self._shrink(2)

    def failed(self, held: int, seconds: float) -> None:
        """Note that a commit failed. If it took long, its size is the likely cause: commits become smaller.

        If it held one record only, or was the second in a row, they are given more time too.

        Args:
            held: About how many bytes it held.
            seconds: The seconds that it took.
        """
        records, self._held = self._held, 0
        if seconds < _SLOW_SECONDS:
            return
        self._failures += 1
        if records == 1 or self._failures > 1:
            self._needed = min(self.step_seconds * 2, self.step_seconds_max)
        if held:
            self.bytes = min(self.bytes, held)
        if records:
            self.records = min(self.records, records)
        self._shrink(4)
        log.warning(
            "slow commit failed: reducing the commit size",
            group=self._group,
            seconds=round(seconds, 1),
            bytes=held,
            bytes_next=self.bytes,
            records_next=self.records,
            step_seconds_next=self.step_seconds,
        )

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
