"""Removes deleted rows, which otherwise stay for ever: each keeps out writes with lower numbers.

A row may go when three things hold. Its deletion *counts*: the ledger's row says so, which is final for every epoch
before its own. It is *old*: the deletion's epoch was over already when an earlier sweep looked, longer ago than any
process can stall or any write be on its way. And its number is *still the same* at the moment it goes. What comes later
finds no row, which reads as a deleted one does.

So the first sweep removes nothing: it notes the time and at which epoch each ledger stands, in a row of the tenant.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from microbatch.stores.port import OWN, Deletion, SweepDriver
from microbatch.stores.store import RemoteStore
from microbatch.stores.versions import UNOWNED, Ledger, WriteId, ledger_key
from streamtable.errors import ConfigurationError

NOTES_KEY = OWN + b"sweep"
SHORTEST_WAIT = 3600
_NOTES_MAX = 100
_PAGE_S = 30.0


class Note(NamedTuple):
    """The note of an earlier sweep.

    Attributes:
        time: seconds since 1970, after it had looked.
        epochs: The epoch of each partition's ledger; every earlier epoch was over.
    """

    time: float
    epochs: Mapping[int, int]


class Swept(NamedTuple):
    """The result of a sweep.

    Attributes:
        deletions: rows whose last written version is a deletion.
        may_go: those that may be removed.
        removed: those that were; another number had come meanwhile where it is less.
        waits_for: The seconds until the first recorded rows can be removed; 0 if some can be removed already.
    """

    deletions: int
    may_go: int
    removed: int
    waits_for: float


def may_go(deletion: Deletion, ledger: Ledger, over: Mapping[int, int]) -> bool:
    """Return whether a row may be removed, if its number is still the same.

    Args:
        deletion: The deletion in the store.
        ledger: The ledger of its partition.
        over: The epoch by partition below which all have been over for long enough.
    """
    write_id = WriteId.of(deletion.number)
    return write_id.epoch < over.get(deletion.partition, 0) and ledger.counts(write_id)


def sweep(driver: SweepDriver, store: RemoteStore, *, after: float, now: float, keep: bool = False) -> Swept:
    """Remove a tenant's deleted rows that no reader or writer can need any more, and record those for the next sweep.

    The group continues meanwhile. A deletion made under the present epoch of its partition goes in a sweep after the
    next rebalance or restart.

    Args:
        driver: The driver of the store.
        store: the same one.
        after: seconds, longer than any process can stall and any write be on its way; an hour at least, better a day.
        now: seconds since 1970.
        keep: only look; nothing is removed and nothing noted.

    Raises:
        RetryLater: The store does not answer. Removed rows stay removed.
        ConfigurationError: `after` is too short.
    """
    if after < SHORTEST_WAIT:
        raise ConfigurationError(
            f"a sweep waits for {SHORTEST_WAIT} s at least, not {after:g}: a process may stall"
        )
    notes = [note for note in _read(store) if note.time <= now]
    over = next((note.epochs for note in reversed(notes) if now - note.time >= after), {})
    epochs: dict[int, int] = {}
    ledgers: dict[int, Ledger] = {}
    seen = going = removed = 0
    for page in driver.deletions(_PAGE_S):
        _look_up(store, (each.partition for each in page), ledgers, epochs)
        chosen = [each for each in page if may_go(each, ledgers[each.partition], over)]
        seen += len(page)
        going += len(chosen)
        if not keep:
            removed += driver.forget(chosen, _PAGE_S)
    if not keep and epochs:
        _write(store, [*notes, Note(now, epochs)], after)
    oldest = min((note.time for note in notes), default=now)
    return Swept(seen, going, removed, 0.0 if over else max(0.0, oldest + after - now))


def _look_up(
    store: RemoteStore, partitions: Iterable[int], ledgers: dict[int, Ledger], epochs: dict[int, int]
) -> None:
    new = {partition: ledger_key(partition) for partition in partitions if partition not in ledgers}
    rows = store.get_many(new.values())
    for partition, key in new.items():
        row = rows.get(key)
        ledgers[partition] = Ledger.seen(UNOWNED, row)
        epochs[partition] = WriteId.of(row.number).epoch if row else 0


def _read(store: RemoteStore) -> list[Note]:
    row = store.get(NOTES_KEY)
    if row is None:
        return []
    return [
        Note(time, {int(place): epoch for place, epoch in epochs.items()})
        for time, epochs in json.loads(row.data)
    ]


def _write(store: RemoteStore, notes: Sequence[Note], after: float) -> None:
    """Return the notes that a later sweep can use: the newest that is old enough, and all later ones."""
    newest = notes[-1].time
    usable = [at for at, note in enumerate(notes) if newest - note.time >= after]
    kept = notes[usable[-1] if usable else 0 :]
    if len(kept) > _NOTES_MAX:
        kept = [kept[0], *kept[1 - _NOTES_MAX :]]
    store.put_many({NOTES_KEY: json.dumps(kept).encode()}, None)
