"""The expected table after faults, computed from the keys alone, without a list of events.

Each key has its number of events: `k17-x250` gets 250, numbered 1 to 250 in the order of sending. A table of counts
must end with that number, whatever was killed in between. Everything is made from a seed.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypedDict

from streamtable.base.partitioner import partition_for

_HASH_BYTES = 16


class OrderRow(TypedDict):
    """The row of a handler that checks the order of a key's events; an error is kept for ever."""

    last: int
    violations: list[str]


@dataclass(frozen=True)
class Violation:
    """A key whose row is wrong. `found` is None if it has none; `expected` is 0 for a key that was never sent."""

    key: str
    expected: int
    found: int | None

    @property
    def excess(self) -> int:
        """The number of events counted too often; negative: lost."""
        return (self.found or 0) - self.expected

    def __str__(self) -> str:
        what = "missing" if self.found is None else f"over by {self.excess}" if self.excess > 0 else "under"
        return f"{self.key}: {what} ({self.found} of {self.expected})"


def expected_total(key: str) -> int:
    """Return the total number of events of the key. Raises `ValueError` for a key that `make_keys` did not make."""
    return int(key.rpartition("-x")[2])


def make_keys(seed: int, partitions: int, per_partition: int, total: int) -> list[str]:
    """Return keys with about `total` events together, the same number of keys for each partition.

    Args:
        seed: Equal seeds make equal keys.
        partitions: The number of partitions of the topic.
        per_partition: The number of keys in each partition, by murmur2.
        total: The number of events; each key gets between half and one and a half times its share.
    """
    rng = random.Random(seed)
    share = max(2, total // (partitions * per_partition))
    remaining = dict.fromkeys(range(partitions), per_partition)
    keys: list[str] = []
    number = 0
    while any(remaining.values()):
        key = f"k{number}-x{rng.randint(share // 2, share + share // 2)}"
        number += 1
        partition = partition_for(key.encode(), partitions)
        if remaining[partition]:
            remaining[partition] -= 1
            keys.append(key)
    return keys


def make_events(seed: int, keys: Sequence[str]) -> list[tuple[str, int]]:
    """Return all events of the keys as (key, number), shuffled, with each key's numbers rising from 1."""
    sequence = [key for key in keys for _ in range(expected_total(key))]
    random.Random(seed).shuffle(sequence)
    last = dict.fromkeys(keys, 0)
    events = []
    for key in sequence:
        last[key] += 1
        events.append((key, last[key]))
    return events


def violations(counts: Mapping[str, int], keys: Iterable[str]) -> list[Violation]:
    """Compare a table of counts with its keys. Returns missing, too low and too high rows, and rows of unknown keys."""
    totals = {key: expected_total(key) for key in keys}
    found = [
        Violation(key, expected, counts.get(key))
        for key, expected in totals.items()
        if counts.get(key) != expected
    ]
    return found + [Violation(key, 0, count) for key, count in counts.items() if key not in totals]


def follow(row: OrderRow | None, number: int) -> OrderRow:
    """Return the row after an event. Its number must follow the last one; a gap or a step backwards is kept as an error."""
    last = row["last"] if row else 0
    noted = row["violations"] if row else []
    if number == last + 1:
        return {"last": number, "violations": noted}
    return {"last": max(last, number), "violations": [*noted, f"{number} after {last}"]}


def digest(rows: Iterable[tuple[bytes, bytes]]) -> str:
    """Return a fingerprint of a table's encoded rows that does not depend on their order."""
    total = count = 0
    for key, value in rows:
        each = blake2b(len(key).to_bytes(8, "big") + key + value, digest_size=_HASH_BYTES)
        total += int.from_bytes(each.digest(), "big")
        count += 1
    return f"{count} rows {total % (1 << 8 * _HASH_BYTES):0{2 * _HASH_BYTES}x}"


def replayed(records: Iterable[tuple[bytes, bytes | None]]) -> dict[bytes, bytes]:
    """Return the table of a changelog's records, in order: the last value of each key; None deletes."""
    table: dict[bytes, bytes] = {}
    for key, value in records:
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
    return table


def parts(events: Sequence[tuple[str, int]], count: int) -> Iterator[Sequence[tuple[str, int]]]:
    """Split the events into `count` consecutive parts of about equal length."""
    for index in range(count):
        yield events[index * len(events) // count : (index + 1) * len(events) // count]
