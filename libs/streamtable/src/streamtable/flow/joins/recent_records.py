"""The waiting records of a join that came last, in memory: those that match are mostly among them.

All that came after the oldest one here are here: the last ones in dicts, and those before them frozen, which takes less
than half of the memory. Of records older than all these the keys are known, in a filter of each side, so that only keys
which may have some are looked up in the table. All times are milliseconds since 1970.
"""

from bisect import insort
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from streamtable.flow.joins.key_filter import KeyFilter
from streamtable.flow.joins.rules import LEFT, RIGHT, Side
from streamtable.flow.joins.waiting_records import replace_record

if TYPE_CHECKING:
    from streamtable.flow.joins.frozen_records import FrozenRecords

# Of memory beside the bytes of the key and of the record: measured, with the entry in the dict.
_ENTRY_BYTES = 200
_ALLOCATED = 1.25  # bytes of memory for each byte of frozen records: measured
_DICTS_SHARE = 8  # records in dicts are frozen at the next commit if they take more than one part of so many of the memory


class _Generation(NamedTuple):
    """Frozen records that came one after another.

    Attributes:
        records: The records of each side.
        number: The last record's number plus one.
        due_ms: When the last record is due.
        commits: The number of commits before the last record came.
    """

    records: "tuple[FrozenRecords, FrozenRecords]"
    number: int
    due_ms: int
    commits: int

    @property
    def memory(self) -> float:
        return _ALLOCATED * sum(each.memory for each in self.records)


class RecentRecords:
    """The records of both sides that came last, by key.

    Args:
        number: The number of the next record: all from this one on are here.
        due_ms: When the last row is due that the table has now; None: it has none.

    Attributes:
        since: The number of the oldest record that is certainly here, and all after it.
        next: The number of the next record.
    """

    def __init__(self, number: int, due_ms: int | None) -> None:
        self.since = self.next = number
        # By key: a record, or several in order.
        self._by_key: tuple[dict[bytes, bytes | list[bytes]], ...] = {}, {}
        self._memory = 0  # of the records in the dicts
        self._due_ms = self._commits = 0  # as of a generation
        self._frozen: deque[_Generation] = deque()
        self._older = KeyFilter(due_ms), KeyFilter(due_ms)

    def of(self, side: Side, keys: Sequence[bytes]) -> list[bytes | list[bytes] | None]:
        """Return the records of each key that are not frozen: none, one, or several in the order of time."""
        return list(map(self._by_key[side].get, keys))

    def frozen(self, side: Side) -> "list[FrozenRecords]":
        """Return the frozen records of a side."""
        return [each.records[side] for each in self._frozen]

    def may_be_older(self, side: Side, hashes: Sequence[int], gone_before_ms: int) -> Sequence[object]:
        """Return for each key, by its hash, a true value if it may have records that are not here. As `KeyFilter.may_have`."""
        return self._older[side].may_have(hashes, gone_before_ms)

    def add(
        self, side: Side, keys: Sequence[bytes], records: Sequence[bytes], due_ms: int, commits: int
    ) -> None:
        """Add the next records.

        Args:
            side: Their stream.
            keys: The key of each.
            records: The records.
            due_ms: When the last of them is due.
            commits: The number of commits before them.
        """
        by_key = self._by_key[side]
        for key, record in zip(keys, records, strict=True):
            there = by_key.setdefault(key, record)
            if there is not record:
                if isinstance(there, bytes):
                    there = by_key[key] = [there]
                insort(there, record)
        self.next += len(keys)
        self._memory += sum(map(len, keys)) + sum(map(len, records)) + _ENTRY_BYTES * len(keys)
        self._due_ms, self._commits = max(self._due_ms, due_ms), commits

    def replace(self, side: Side, key: bytes, old: bytes, new: bytes) -> None:
        """Put a record in the place of another one, if that is here and not frozen."""
        there = self._by_key[side].get(key)
        if there == old:
            self._by_key[side][key] = new
        elif isinstance(there, list):
            replace_record(there, old, new)

    def make_room(self, memory_bytes: int, commits: int, gone_before_ms: int) -> None:
        """Drop the oldest records that exceed the memory; those that were not there at the last commit stay."""
        # At most once in a commit: newer records must stay anyway, and few large generations are searched faster.
        if self._memory > memory_bytes // _DICTS_SHARE and self._commits != commits:
            self._freeze()
        memory = self._memory + sum(each.memory for each in self._frozen)
        while self._frozen:
            oldest = self._frozen[0]
            gone = oldest.due_ms < gone_before_ms
            if not gone and (memory <= memory_bytes or oldest.commits == commits):
                return
            self._frozen.popleft()
            memory -= oldest.memory
            self.since = oldest.number
            if not gone:
                for keys, records in zip(self._older, oldest.records, strict=True):
                    keys.add(records.hashes, oldest.due_ms)
        if self._due_ms < gone_before_ms:
            self.since = self.next
            self._clear()

    def _freeze(self) -> None:
        """Freeze the records in the dicts."""
        from streamtable.flow.joins.frozen_records import FrozenRecords  # noqa: PLC0415 - numpy takes 20 MB

        left, right = (FrozenRecords(*_columns(self._by_key[side])) for side in (LEFT, RIGHT))
        self._frozen.append(_Generation((left, right), self.next, self._due_ms, self._commits))
        self._clear()

    def _clear(self) -> None:
        self._by_key = {}, {}
        self._memory = self._due_ms = self._commits = 0


def _columns(by_key: Mapping[bytes, bytes | list[bytes]]) -> tuple[list[bytes], list[bytes]]:
    """Return the key of each record, and the records."""
    keys = [key for key, there in by_key.items() if isinstance(there, bytes)]
    records = [there for there in by_key.values() if isinstance(there, bytes)]
    if len(keys) < len(by_key):
        for key, several in by_key.items():
            if isinstance(several, list):
                keys.extend([key] * len(several))
                records.extend(several)
    return keys, records
