"""How much one commit may hold: as much as the way to the broker takes in time.

All records of a commit must be acknowledged within seconds, or the broker gives the transaction up. Over a slow link a
commit of the configured size never is: it would be sent, aborted and sent again for ever. So a process begins with
small commits, doubles them while they are quick, and quarters them when one did not come through in time.
"""

from collections.abc import Callable, Iterable, Iterator

import structlog

from streamtable.engine.settings import ProcessorSettings
from streamtable.types import RecordBatch

log = structlog.get_logger()

STEP_SECONDS_MAX = 4.0
"""Flush and commit must each end well before the broker gives a transaction up (transaction.timeout.ms, 10 s)."""

_FIRST_BYTES = 1 << 20
_FIRST_PART = 100
_QUICK_SECONDS = STEP_SECONDS_MAX / 4
_SLOW_SECONDS = STEP_SECONDS_MAX / 2


class CommitBudget:
    """Bounds of one commit.

    Args:
        group: Its name, for the log.
        bytes_max: The largest that `bytes` becomes.
        records_max: The largest that `records` becomes.
        small: Begin with commits of one record: the process before this one may have died of a record.

    Attributes:
        bytes: A commit is due when it holds so many.
        records: So many at most are handled before that is looked at; fewer if they make many bytes.
    """

    def __init__(self, group: str, bytes_max: int, records_max: int, *, small: bool = False) -> None:
        self._group = group
        self._bytes_max = bytes_max
        self._shrunk = False
        self._records_max = records_max
        self.bytes = 1 if small else min(_FIRST_BYTES, bytes_max)
        self.records = 1 if small else records_max
        self._part = min(_FIRST_PART, records_max)

    @classmethod
    def of(cls, group: str, settings: ProcessorSettings) -> "CommitBudget":
        """Return the budget of a new process of the group."""
        small = settings.in_hand.left is not None
        return cls(group, settings.commit_bytes, settings.poll_records, small=small)

    @property
    def records_bound(self) -> int | None:
        """For work that is done in batches of a size of its own: a bound after a commit that was too large, else None."""
        return self.records if self._shrunk else None

    def committed(self, seconds: float) -> None:
        """A commit took so long, and went well."""
        if seconds < _QUICK_SECONDS:
            self.bytes = min(self.bytes * 2, self._bytes_max)
            self.records = min(self.records * 2, self._records_max)
            self._shrunk = self._shrunk and self.records < self._records_max
        elif seconds > _SLOW_SECONDS:
            self._shrink(2)

    def failed(self, held: int, seconds: float) -> None:
        """A commit failed. If it took long, its size is the likely reason, and the next ones are smaller.

        Args:
            held: About how many bytes it held.
            seconds: How long it took.
        """
        if seconds < _SLOW_SECONDS:
            return
        if held:
            self.bytes = min(self.bytes, held)
        self._shrink(4)
        log.warning(
            "commit failed after a long time, the next ones are smaller",
            group=self._group, seconds=round(seconds, 1), bytes=held, bytes_next=self.bytes, records_next=self.records,
        )  # fmt: skip

    def parts(self, batches: Iterable[RecordBatch], pending: Callable[[], int]) -> Iterator[RecordBatch]:
        """Cut batches into parts that are handled at once, by what the parts before them have come to.

        Args:
            batches: Records of a poll.
            pending: How many bytes the next commit holds by now.
        """
        for batch in batches:
            begin = 0
            while begin < len(batch):
                before = pending()
                end = min(begin + min(self._part, self.records), len(batch))
                yield batch if end - begin == len(batch) else batch.part(begin, end)
                self._fit(end - begin, pending() - before)
                begin = end

    def _fit(self, records: int, made: int) -> None:
        """So many records came to so many bytes: the next part may be larger, but holds half a commit at most."""
        self._part = min(self._part * 2, self._records_max)
        if made > 0:  # else they were committed meanwhile, or made nothing
            self._part = max(1, min(self._part, self.bytes * records // (2 * made)))

    def _shrink(self, by: int) -> None:
        self._shrunk = True
        self.bytes = max(1, self.bytes // by)
        self.records = max(1, self.records // by)
