"""The waiting records of a join that came last, in memory: those that match are mostly among them.

All that came after the oldest one here are here. Of older ones the keys are known, in a filter of each side, so that only
keys which may have older ones are looked up in the table. All times are milliseconds since 1970.
"""

from bisect import insort
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from streamtable.flow.joins import Side
from streamtable.flow.key_filter import KeyFilter
from streamtable.flow.waiting_records import NUMBER, is_record, number_bytes, split

_ENTRY_BYTES = (
    200  # of memory beside the bytes of the key and of the record: measured, with the entry in the dict
)


class _Batch(NamedTuple):
    """Records that came together.

    Attributes:
        side: Their stream.
        keys: Their keys.
        number: The number that follows that of the last one.
        memory: About how many bytes they take.
        due_ms: When the last of them is due.
        commits: The number of commits before it.
    """

    side: Side
    keys: Sequence[bytes]
    number: int
    memory: int
    due_ms: int
    commits: int


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
        self._older = KeyFilter(due_ms), KeyFilter(due_ms)
        self._batches: deque[_Batch] = deque()
        self._memory = 0

    def of(self, side: Side, keys: Sequence[bytes]) -> list[bytes | list[bytes] | None]:
        """Return the records of each key: none, one, or several in the order of time."""
        return list(map(self._by_key[side].get, keys))

    def may_be_older(self, side: Side, keys: Sequence[bytes], gone_before_ms: int) -> Sequence[object]:
        """Return for each key a true value if it may have records that are not here. As `KeyFilter.may_have`."""
        return self._older[side].may_have(keys, gone_before_ms)

    def add(
        self, side: Side, keys: Sequence[bytes], records: Sequence[bytes], due_ms: int, commits: int
    ) -> None:
        """Add the next records; arguments as of `_Batch`."""
        by_key = self._by_key[side]
        for key, record in zip(keys, records, strict=True):
            there = by_key.setdefault(key, record)
            if there is not record:
                if isinstance(there, bytes):
                    there = by_key[key] = [there]
                insort(there, record)
        self.next += len(keys)
        memory = sum(map(len, keys)) + sum(map(len, records)) + _ENTRY_BYTES * len(keys)
        self._memory += memory
        self._batches.append(_Batch(side, keys, self.next, memory, due_ms, commits))

    def replace(self, side: Side, key: bytes, old: bytes, new: bytes) -> None:
        """Put a record in the place of another one, if that is here."""
        there = self._by_key[side].get(key)
        if there == old:
            self._by_key[side][key] = new
        elif isinstance(there, list) and old in there:
            there[there.index(old)] = new

    def deleted(self, raw: bytes) -> None:
        """Drop a record whose row was deleted."""
        if is_record(raw):
            key, side, when = split(raw)
            there = self._by_key[side].get(key)
            if there is not None:
                records = [there] if isinstance(there, bytes) else there
                self._keep(self._by_key[side], key, [each for each in records if not each.startswith(when)])

    def make_room(self, memory_bytes: int, commits: int, gone_before_ms: int) -> None:
        """Drop the oldest records that exceed the memory; those that were not there at the last commit stay."""
        while self._batches:
            batch = self._batches[0]
            gone = batch.due_ms < gone_before_ms
            if not gone and (self._memory <= memory_bytes or batch.commits == commits):
                return
            self._batches.popleft()
            self._memory -= batch.memory
            self.since = batch.number
            if not gone:
                self._older[batch.side].add(batch.keys, batch.due_ms)
            self._drop(batch)

    def _drop(self, batch: _Batch) -> None:
        by_key, limit = self._by_key[batch.side], number_bytes(batch.number)
        for key in batch.keys:
            there = by_key.get(key)
            if there is None:
                continue
            if isinstance(there, bytes):
                if there[NUMBER] < limit:
                    del by_key[key]
            else:
                self._keep(by_key, key, [each for each in there if each[NUMBER] >= limit])

    @staticmethod
    def _keep(by_key: dict[bytes, bytes | list[bytes]], key: bytes, records: list[bytes]) -> None:
        if not records:
            del by_key[key]
        else:
            by_key[key] = records if len(records) > 1 else records[0]
