"""Exactly once over a store without transactions: which of the two versions in a row is committed.

Pure functions and values. Input offsets, output and one number are committed in one Kafka transaction; the store is
written before it. By that number, the commit also decides which writes to the store are valid:

- A *write id* is (epoch, batch). Each batch that writes gets the next one, as the number of its writes, and when the batch
  is committed the write id goes into the offsets' metadata. After a new assignment, an abort, or a commit whose outcome is
  not known, the owner takes the next epoch. So the committed batches of an epoch are all batches up to some number.
- The *ledger* lists the last committed batch of each epoch. A version counts if it is not beyond the last committed
  batch of its epoch.
- A *cell* is what the store holds for a key: the version that was written last, and the one that the writer had read,
  which was committed. So one of the two is committed, whatever has crashed since. The next writer replaces the other
  one. It names its partition too, so that a reader that finds it without a record (a sweep, a search) knows which
  ledger decides.

docs/explanation/central-stores.md has the proof in words, and the requirements on a store.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from microbatch.stores.port import OWN, Row
from streamtable.errors import Migrated, StateLost

_BATCH_BITS = 32
_LARGEST_EPOCH = (1 << 31) - 1
_LARGEST_BATCH = (1 << _BATCH_BITS) - 1
_FORMAT = 2
_CURRENT, _PREVIOUS = 1, 2  # which of the two versions has a value
# Format, flags of the versions with a value, partition, number of the previous version, size of the current value.
_HEAD = struct.Struct(">BBIQI")
_NUMBER = struct.Struct(">Q")
HEAD_BYTES = _HEAD.size
"""The bytes of a cell that `Head.of` needs."""
PLAIN = b"plain"
"""Stands in the place of a ledger if the rows of a tenant have no versions."""


def ledger_key(partition: int) -> bytes:
    """Return the key of the ledger's own row."""
    return OWN + b"ledger/%d" % partition


class WriteId(NamedTuple):
    """The id of a batch that writes: the owner's epoch, and the number of the batch in it, from 1. Ordered in time."""

    epoch: int
    batch: int

    @property
    def number(self) -> int:
        """The write id as one integer below 2**63, in the same order."""
        return self.epoch << _BATCH_BITS | self.batch

    @staticmethod
    def of(number: int) -> "WriteId":
        return WriteId(number >> _BATCH_BITS, number & _LARGEST_BATCH)


NOTHING = WriteId(0, 0)
"""Before all others: the write id of a key without a row. It always counts as committed."""


class Version(NamedTuple):
    """A value and the batch that wrote it. None: the key was deleted, or never existed."""

    write_id: WriteId
    value: bytes | None


ABSENT = Version(NOTHING, None)


class Head(NamedTuple):
    """The header of a cell.

    Attributes:
        partition: The partition whose ledger decides which version counts.
        deleted: Whether the version that was written last is a deletion.
    """

    partition: int
    deleted: bool

    @staticmethod
    def of(data: bytes) -> "Head | None":
        """Decode a row's data or its first `HEAD_BYTES`; None if it is not a cell."""
        if len(data) < _HEAD.size:
            return None
        version, has, partition, _, _ = _HEAD.unpack_from(data)
        return Head(partition, not has & _CURRENT) if version == _FORMAT else None


class VersionedCell(NamedTuple):
    """The two versions of a row, and the partition that its key belongs to."""

    current: Version
    previous: Version
    partition: int

    def encode(self) -> bytes:
        """Return the row's data, without the current version's number, which is the number of the row."""
        (_, now), (write_id, before), partition = self
        has = (now is not None) * _CURRENT | (before is not None) * _PREVIOUS
        head = _HEAD.pack(_FORMAT, has, partition, write_id.number, len(now or b""))
        return head + (now or b"") + (before or b"")

    @staticmethod
    def decode(row: Row) -> "VersionedCell":
        """Decode a cell from a row.

        Raises:
            StateLost: The row was written by something else.
        """
        if len(row.data) >= _HEAD.size:
            version, has, partition, number, length = _HEAD.unpack_from(row.data)
            now, before = row.data[_HEAD.size : _HEAD.size + length], row.data[_HEAD.size + length :]
            fits = len(now) == length and (has & _CURRENT or not now) and (has & _PREVIOUS or not before)
            if version == _FORMAT and has <= _CURRENT | _PREVIOUS and fits:
                current = Version(WriteId.of(row.number), now if has & _CURRENT else None)
                previous = Version(WriteId.of(number), before if has & _PREVIOUS else None)
                return VersionedCell(current, previous, partition)
        raise StateLost(
            f"a row of the central store is not a cell of this library (it begins with {row.data[:16].hex()}): "
            "another program writes under this tenant; give the group its own tenant"
        )


class CommittedState(NamedTuple):
    """The state of a partition's central store in the metadata of the committed offsets.

    Attributes:
        epoch: The latest epoch.
        end: The last batch that was committed, under this epoch or an earlier one; `NOTHING` if there is none.
    """

    epoch: int
    end: WriteId


UNOWNED = CommittedState(0, NOTHING)
"""The state before the first commit."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The last committed batch of each epoch, for one partition of a group, as its current owner knows it.

    Attributes:
        epoch: The owner's epoch.
        ends: The last committed batch of each epoch that has one, in the order of epochs.
    """

    epoch: int
    ends: Mapping[int, int]

    @classmethod
    def open(cls, committed: CommittedState, row: Row | None) -> Self:
        """Return the ledger of a new owner, or of the same one after an abort, under an epoch not used before.

        Before anything is written under it, two steps are needed. First the proof: a commit that moves no offset and
        has `committed_state` in its metadata. It shows that the partition is ours and that earlier epochs are fenced; a
        later owner finds the epoch and takes the next. Then the ledger's own row is written, with `opening` as its
        number. Until then, the metadata keep the one end that the row lacks.

        Args:
            committed: The state in the metadata of the stable committed offsets; `UNOWNED` if there are none.
            row: The ledger's row, read *after* the offsets.

        Raises:
            Migrated: The row is newer than the offsets, because another owner has written meanwhile. If the offsets are
                unchanged when read again, they were reset; see `reset_error`.
            StateLost: The row is missing or too old: the store has lost acknowledged writes.
        """
        written = NOTHING if row is None else WriteId.of(row.number)
        if written.epoch > committed.epoch:
            raise Migrated(
                f"the ledger is at epoch {written.epoch}, the committed offsets are at {committed.epoch}"
            )
        if written.epoch < committed.end.epoch:
            raise StateLost(
                f"the central store's ledger is at epoch {written.epoch}, batches are committed under "
                f"{committed.end.epoch}: the store has lost rows (emptied, evicted, restored, or failed over without "
                "them). Clear the tenant and start the group from the beginning of its input"
            )
        numbers = _NUMBER.iter_unpack(row.data if row else b"")
        ends = dict(WriteId.of(number) for (number,) in numbers)
        if committed.end != NOTHING:
            ends[committed.end.epoch] = committed.end.batch
        assert committed.epoch < _LARGEST_EPOCH
        return cls(committed.epoch + 1, ends)

    @classmethod
    def seen(cls, committed: CommittedState, row: Row | None) -> Self:
        """Return the ledger for a reader or a sweep, which does not own the partition and writes nothing under it.

        Args:
            committed: The state in the metadata of the stable committed offsets; `UNOWNED` if they were not read:
                batches committed under the owner's own epoch then do not count yet.
            row: The ledger's row, read *after* the offsets.
        """
        numbers = _NUMBER.iter_unpack(row.data if row else b"")
        ends = dict(WriteId.of(number) for (number,) in numbers)
        if committed.end != NOTHING:
            epoch, batch = committed.end
            ends[epoch] = max(batch, ends.get(epoch, 0))
        return cls(max(committed.epoch, WriteId.of(row.number).epoch if row else 0), ends)

    @property
    def opening(self) -> int:
        """The number of the ledger's own row."""
        return WriteId(self.epoch, 0).number

    def encode(self) -> bytes:
        """Return the data of the ledger's own row: 8 bytes for each epoch with a commit."""
        return b"".join(_NUMBER.pack(WriteId(*end).number) for end in self.ends.items())

    @property
    def committed_state(self) -> CommittedState:
        """The state for the metadata of a commit: of the proof, or after `committed` of the next batch."""
        epoch = next(reversed(self.ends), 0)
        return CommittedState(self.epoch, WriteId(epoch, self.ends.get(epoch, 0)))

    @property
    def next_write_id(self) -> WriteId:
        """The write id of the next batch under this epoch."""
        return WriteId(self.epoch, self.ends.get(self.epoch, 0) + 1)

    def committed(self) -> "Ledger":
        """Return the ledger after the batch with `next_write_id` is committed. Its `committed_state` goes into that commit."""
        write_id = self.next_write_id
        assert write_id.batch <= _LARGEST_BATCH
        return Ledger(self.epoch, {**self.ends, write_id.epoch: write_id.batch})

    def counts(self, write_id: WriteId) -> bool:
        """Return whether the writes of this batch are committed."""
        return write_id == NOTHING or 1 <= write_id.batch <= self.ends.get(write_id.epoch, 0)

    def read(self, row: Row | None) -> Version:
        """Return the newest committed version; `ABSENT` if the key has no row.

        Raises:
            Migrated: A later owner of the partition has written, so this process no longer owns it.
            StateLost: Neither version is committed.
        """
        if row is None:
            return ABSENT
        cell = VersionedCell.decode(row)
        if cell.current.write_id.epoch > self.epoch:
            raise Migrated(
                f"a row has been written under epoch {cell.current.write_id.epoch}, ours is {self.epoch}"
            )
        return self.counting(cell)

    def counting(self, cell: VersionedCell) -> Version:
        """Return the newest committed version of a cell. Raises `StateLost` if neither is committed."""
        for version in (cell.current, cell.previous):
            if self.counts(version.write_id):
                return version
        raise StateLost(
            f"neither version of a row counts: {cell.current.write_id} and {cell.previous.write_id}, committed is "
            f"{self.committed_state.end}. Another group writes under this tenant, or the store was restored from an older "
            "copy: clear the tenant and start the group from the beginning of its input"
        )


def reset_error(row: Row, committed: CommittedState) -> StateLost:
    """Return the error for a ledger that is ahead of the committed offsets: these were reset, the rows were not."""
    return StateLost(
        f"the central store's ledger is at epoch {WriteId.of(row.number).epoch}, the committed offsets are at "
        f"{committed.epoch}: the offsets were reset or have expired, and the store still has later rows. "
        "Clear the tenant too, or give the group another one"
    )


def replace(before: Version, write_id: WriteId, value: bytes | None, partition: int) -> VersionedCell | None:
    """Return the cell that a batch writes after it has read `before`; None if there is nothing to write."""
    if value is None and before.value is None:
        return None
    assert write_id > before.write_id, (write_id, before.write_id)
    return VersionedCell(Version(write_id, value), before, partition)
