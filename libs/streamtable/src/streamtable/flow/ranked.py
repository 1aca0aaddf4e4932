"""Ranked aggregates of grouped tables: the least and greatest values, and the first few, of rows that change and go.

Beside its row, each group keeps what all of its rows are ordered by, in order. A change costs one lookup and one write there,
and reading the first few.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct
from typing import Any, NamedTuple, TypeVar

from streamtable.base.decoding import ItemCodec
from streamtable.base.keys import after_prefix
from streamtable.base.ports import Codec
from streamtable.errors import DeserializationError
from streamtable.flow.folds.folds import Keeping
from streamtable.flow.folds.ordered_bytes import ordered_bytes
from streamtable.flow.plan.columns import Columns, Scope
from streamtable.flow.plan.nodes import Node
from streamtable.flow.plan.plan import Plan
from streamtable.flow.table import KeyedTable
from streamtable.graph.aggregate import Ranked
from streamtable.graph.state import State
from streamtable.handlers.state_table import StateRows

K = TypeVar("K")
V = TypeVar("V")

_LENGTH = Struct(">I")
_COUNT = Struct(">Q")
_DIGEST_BYTES = 16


class Rank(NamedTuple):
    """The key of a row in the order of its group.

    Attributes:
        key: The key of the group.
        order: The value that it is ordered by, as ordered bytes, and a digest of the row.
    """

    key: Any
    order: bytes


@dataclass(frozen=True, repr=False, eq=False)
class RankKey(ItemCodec[Rank]):
    """The codec of `Rank`: the length of the group's key as 4 bytes, the key, and the order.

    Args:
        key: The codec of the keys of the groups.
    """

    key: Codec[Any]

    def encode(self, value: Rank) -> bytes:
        return group_prefix(self.key.encode(value.key)) + value.order

    def decode(self, data: bytes) -> Rank:
        end = _LENGTH.size + (_LENGTH.unpack_from(data)[0] if len(data) >= _LENGTH.size else len(data))
        if end > len(data):
            raise DeserializationError(f"{data[:100]!r} is no key of a row in the order of its group")
        return Rank(self.key.decode(data[_LENGTH.size : end]), data[end:])


class Same(NamedTuple):
    """Rows of a group that are the same.

    Attributes:
        number: How many there are.
        row: The encoded row that the aggregate makes of one of them alone.
    """

    number: int
    row: bytes


@dataclass(frozen=True, repr=False, eq=False)
class SameCodec(ItemCodec[Same]):
    """The codec of `Same`: the count as 8 bytes, then the row.

    Args:
        rows: The codec of the rows.
    """

    rows: Codec[Any]

    def encode(self, value: Same) -> bytes:
        return _COUNT.pack(value.number) + value.row

    def decode(self, data: bytes) -> Same:
        if len(data) < _COUNT.size:
            raise DeserializationError(f"rows of a group begin with their count, not with {data!r}")
        return Same(_COUNT.unpack_from(data)[0], data[_COUNT.size :])


def group_prefix(key: bytes) -> bytes:
    """Return the beginning of the keys of all rows of a group, and of no other."""
    return _LENGTH.pack(len(key)) + key


@dataclass(frozen=True)
class KeepRanked(Keeping):
    """The step that folds the changes of a grouped table by a ranked aggregate.

    Args:
        state: The table: the aggregate of the first rows of each group.
        ranks: All rows of each group, in order.
        aggregate: The aggregate. A row that it ranks as None is skipped.
    """

    ranks: State[Any, Any]
    aggregate: Ranked[Any, Any]

    def step(self, scope: Scope, records: Columns) -> Columns:
        """Fold the changes. Returns one change for each key whose row has changed, in the order of their last records."""
        keys, encode = records.encoded_keys, self.state.value.encode
        ranks, table = scope.table(self.ranks).raw, scope.table(self.state).raw
        self._count(ranks, keys, records.values)
        last_of = dict(zip(keys, range(len(keys)), strict=True))
        changed: list[tuple[int, Any, Any]] = []
        for (key, index), old in zip(last_of.items(), table.get_many(last_of), strict=True):
            new = self._row(ranks, key)
            if new is old or (new == old and encode(new) == encode(old)):  # 1 and True are equal
                continue
            changed.append((index, new, old))
            table.put(key, new)
        changed.sort(key=lambda each: each[0])
        made = records.at([index for index, _, _ in changed])
        return made.with_values([new for _, new, _ in changed], [old for _, _, old in changed])

    def _count(self, ranks: StateRows[Same], keys: Sequence[bytes], changes: Sequence[Any]) -> None:
        """Add and take away the rows in the order of their groups."""
        rank, first, descending = self.aggregate.rank, self.aggregate.first, self.aggregate.descending
        encode = self.state.value.encode
        more: dict[bytes, int] = {}
        row_of: dict[bytes, bytes] = {}
        for key, (added, event) in zip(keys, changes, strict=True):
            value = rank(event)
            if value is None:
                continue
            row = encode(first(event))
            digest = blake2b(row, digest_size=_DIGEST_BYTES).digest()
            place = group_prefix(key) + ordered_bytes(value, descending=descending) + digest
            row_of[place] = row
            more[place] = more.get(place, 0) + (1 if added else -1)
        for (place, change), found in zip(more.items(), ranks.get_many(more), strict=True):
            count = change + (0 if found is None else found.number)
            if count < 0:
                self._take_older(ranks, place, row_of[place], -count)
            if count <= 0:
                ranks.put(place, None)
            elif change:
                ranks.put(place, Same(count, row_of[place]))

    def _take_older(self, ranks: StateRows[Same], place: bytes, row: bytes, number: int) -> None:
        """Take away rows that were encoded with an earlier schema, so that their digests are others."""
        first, codec = place[:-_DIGEST_BYTES], self.state.value
        for other, same in list(ranks.scan(first, after_prefix(first))):
            if number and other != place and codec.encode(codec.decode(same.row)) == row:
                taken = min(number, same.number)
                ranks.put(other, Same(same.number - taken, same.row) if taken < same.number else None)
                number -= taken
        if number:
            raise ValueError(
                f"a row of {self.state.name!r} is taken away from its group, but was never added to it: {row[:100]!r}"
            )

    def _row(self, ranks: StateRows[Same], key: bytes) -> Any:
        """Return the aggregate of the first rows of a group; None if it has none."""
        prefix, decode, most = group_prefix(key), self.state.value.decode, self.aggregate.most
        row, taken = None, 0
        for _, (number, data) in ranks.scan(prefix, after_prefix(prefix), at_once=most):
            for _ in range(min(number, most - taken)):
                row = decode(data) if row is None else self.aggregate.merge(row, decode(data))
                taken += 1
            if taken == most:
                break
        return row


def ranked_table(
    plan: Plan, node: Node, name: str, aggregate: Ranked[Any, V], key: Codec[K], value: Codec[V]
) -> KeyedTable[K, V]:
    """Fold the changes of a grouped table by a ranked aggregate, into two state tables of its group."""
    operator, helper = f"{aggregate.meaning} of rows", f"{name}-ranks"
    plan.claim(name, operator)
    plan.claim(helper, f"{operator} {name!r}")
    state = State(name, key=key, value=value, meaning=operator)
    ranks: State[Any, Any] = State(
        helper, key=RankKey(key), value=SameCodec(value), meaning=f"rows in order, for {operator}"
    )
    return KeyedTable.kept(plan, node, KeepRanked(state, ranks, aggregate), None, ranks)
