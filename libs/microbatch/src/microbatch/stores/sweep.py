"""Removes deleted rows, which otherwise stay for ever, because each rejects writes with lower numbers.

A row can be removed under three conditions. Its deletion is *committed* according to the ledger's row, which is final
for every epoch before its own. It is *old*: the epoch of the deletion was already over at an earlier sweep, longer ago
than any process can stall or any write can be in flight. And its number is *unchanged* at the moment of removal. Later
readers find no row, which means the same as a deleted one.

So the first sweep removes nothing: it records the time and the epoch of each ledger in a row of the tenant.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from microbatch.stores.port import OWN, Deletion, SweepDriver
from microbatch.stores.store import RemoteStore
from microbatch.stores.versions import PLAIN, UNOWNED, Ledger, WriteId, ledger_key
from streamtable.errors import ConfigurationError

NOTES_KEY = OWN + b"sweep"
SHORTEST_WAIT = 3600
_NOTES_MAX = 100
_PAGE_S = 30.0


class Note(NamedTuple):
    """The note of an earlier sweep.

    Attributes:
        time: The time after its look-up, in seconds since 1970.
        epochs: The epoch of each partition's ledger; every earlier epoch was over.
    """

    time: float
    epochs: Mapping[int, int]


class Swept(NamedTuple):
    """The result of a sweep.

    Attributes:
        deletions: The number of rows whose last written version is a deletion.
        may_go: The number of rows that may be removed.
        removed: The number of removed rows; lower than `may_go` if rows were written meanwhile.
        waits_for: The seconds until the first recorded rows can be removed; 0 if some can be removed already.
    """

    deletions: int
    may_go: int
    removed: int
    waits_for: float


def may_go(deletion: Deletion, ledger: Ledger, over: Mapping[int, int]) -> bool:
    """Return whether a row may be removed if its number is unchanged.

    Args:
        deletion: The deletion in the store.
        ledger: The ledger of its partition.
        over: The epoch by partition below which all have been over for long enough.
    """
    write_id = WriteId.of(deletion.number)
    return write_id.epoch < over.get(deletion.partition, 0) and ledger.counts(write_id)


def sweep(driver: SweepDriver, store: RemoteStore, *, after: float, now: float, keep: bool = False) -> Swept:
    """Remove a tenant's deleted rows that no reader or writer can need any more, and record those for the next sweep.

    The group continues meanwhile. A deletion under the current epoch of its partition is removed by a sweep after the
    next rebalance or restart.

    Args:
        driver: The driver of the store.
        store: The store of that driver.
        after: The seconds to wait, longer than any process can stall and any write can be in flight; at least an hour,
            better a day.
        now: The time in seconds since 1970.
        keep: Whether only to count: nothing is removed or recorded.

    Raises:
        RetryLater: The store does not answer. Removed rows stay removed.
        ConfigurationError: `after` is too short, or the rows are plain.
    """
    if after < SHORTEST_WAIT:
        raise ConfigurationError(
            f"a sweep must wait for {SHORTEST_WAIT} s at least, not {after:g}: a process may stall"
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
        if row is not None and row.data == PLAIN:
            raise ConfigurationError("the rows of the tenant are plain, so none waits for a sweep")
        ledgers[partition] = Ledger.seen(UNOWNED, row)
        epochs[partition] = WriteId.of(row.number).epoch if row else 0


def _read(store: RemoteStore) -> list[Note]:
    row = store.get(NOTES_KEY)
    notes = json.loads(row.data) if row is not None else ()
    return [Note(time, {int(place): epoch for place, epoch in epochs.items()}) for time, epochs in notes]


def _write(store: RemoteStore, notes: Sequence[Note], after: float) -> None:
    """Return the notes that a later sweep can use: the newest that is old enough, and all later ones."""
    newest = notes[-1].time
    usable = [at for at, note in enumerate(notes) if newest - note.time >= after]
    kept = notes[usable[-1] if usable else 0 :]
    if len(kept) > _NOTES_MAX:
        kept = [kept[0], *kept[1 - _NOTES_MAX :]]
    store.put_many({NOTES_KEY: json.dumps(kept).encode()}, None)
