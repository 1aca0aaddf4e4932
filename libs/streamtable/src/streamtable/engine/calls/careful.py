"""The careful mode of a partition: the records to handle one by one, and those that have failed. It survives a rewind.

By default handlers run over whole batches, and the changes of a single record are not recorded: that is fast, but the
effects of one record cannot be undone. So the first failure rewinds to the last commit, and from there the partition is
handled carefully: record by record, each with a journal of the values that it has replaced (`engine.calls.undo`). A failure then
undoes one record. After enough records without a failure the partition is handled in batches again.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamtable.base.types import RecordBatch
from streamtable.errors import HandlerFailed

CAREFUL_RECORDS = 50_000
"""The number of records that are handled carefully after a failure, so that rare failures do not cause a rewind each."""

BATCH_RECORDS = 32
"""The number of records per call of a batch handler or an aggregate in careful mode. After a failed call its
records are tried one by one."""


@dataclass
class CarefulMode:
    """The state of one partition in this process.

    Attributes:
        records_left: The number of records still to be handled carefully.
        batch_records: The number of records that a batch handler is called with at once.
    """

    records_left: int = 0
    batch_records: int = BATCH_RECORDS
    _condemned: dict[str, dict[Any, tuple[HandlerFailed, bytes | None]]] = field(default_factory=dict)
    _commit_at: dict[str, int] = field(default_factory=dict)

    @property
    def active(self) -> bool:
        return self.records_left > 0

    def begin(self, undone: int, *, singly: bool = False) -> None:
        """Handle the records since the last commit, and many after them, carefully: a failure was seen.

        Args:
            undone: The number of records that were handled since the last commit.
            singly: Batch handlers get one record at a time, so that an output can be traced to its record.
        """
        self.records_left = max(self.records_left, undone + CAREFUL_RECORDS)
        if singly:
            self.batch_records = 1

    def handled(self, records: int) -> None:
        """Count records that were handled."""
        self.records_left = max(0, self.records_left - records)
        if not self.records_left:
            self.batch_records = BATCH_RECORDS

    # ---- records that failed after their handler had returned --------------------------------------------------------

    def condemn(self, topic: str, offset: int | bytes, failed: HandlerFailed, key: bytes | None) -> None:
        """Leave this record out after the rewind: it cannot be undone alone any more. Of a row that is due, its entry counts.

        Later records of its key have failed because of its effects, which will be undone: they are tried again.
        """
        found = self._condemned.get(topic, {}).items()
        kept = {at: each for at, each in found if at < offset or each[1] != key}
        self._condemned[topic] = kept | {offset: (failed, key)}

    def failure_of(self, topic: str, offset: int | bytes) -> HandlerFailed | None:
        """Return the error of a condemned record."""
        return self._condemned.get(topic, {}).get(offset, (None, None))[0]

    def condemned(self, records: RecordBatch) -> dict[int, HandlerFailed]:
        """Return the condemned ones of these records, by index."""
        found = self._condemned.get(records.topic)
        if not found:
            return {}
        return {index: found[offset][0] for index, offset in enumerate(records.offsets) if offset in found}

    # ---- progress between two rewinds --------------------------------------------------------------------------------

    def commit_at(self, topic: str, offset: int) -> None:
        """Commit as soon as the topic is handled up to here, so that the good records are not handled a third time."""
        self._commit_at[topic] = min(offset, self._commit_at.get(topic, offset))

    def before_commit(self, records: RecordBatch) -> int:
        """Return the number of the records that come before the next commit."""
        until = self._commit_at.get(records.topic)
        if until is None or records.last_offset < until:
            return len(records)
        if records.first_offset >= until:  # the records before are gone, or no commit was possible
            del self._commit_at[records.topic]
            return len(records)
        return bisect_left(records.offsets, until)

    def commit_reached(self, topic: str, next_offset: int) -> bool:
        """Whether the topic has reached the offset where a commit must be made."""
        until = self._commit_at.get(topic)
        return until is not None and next_offset >= until

    def commit_reached_by(self, next_offsets: Mapping[str, int]) -> bool:
        """Whether any of these topics has reached the offset where a commit must be made."""
        return bool(self._commit_at) and any(map(self.commit_reached, next_offsets, next_offsets.values()))

    def committed(self, topic: str, next_offset: int | bytes) -> None:
        """Forget failures before these offsets, which are committed."""
        if isinstance(next_offset, int) and self.commit_reached(topic, next_offset):
            del self._commit_at[topic]
        if found := self._condemned.get(topic):
            self._condemned[topic] = {o: error for o, error in found.items() if o >= next_offset}
