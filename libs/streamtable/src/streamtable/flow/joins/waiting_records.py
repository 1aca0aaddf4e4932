"""Waiting records of a join of streams as bytes. Most are written, matched by few or none, and deleted: none is decoded for that.

A record is its time and its number, 8 bytes each, and its row: sorted records of a key are in the order of time.
The row is as `WaitingCodec` writes it: the side, whether it has matched, its `late_before`, and the encoded value.
"""

from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import compress, count, repeat
from operator import add
from struct import Struct
from typing import Any

from streamtable.base.decoding import ItemCodec, row_codec
from streamtable.base.ports import Codec
from streamtable.errors import DeserializationError
from streamtable.flow.joins.rules import Side, WaitingCodec, next_row, stored_values

_RECORD = Struct(">QQB?q")
_TIMES = Struct(">Q9x?q")
"""The parts of a record that decide what it matches."""
_ROW_AT = 16  # behind time and number
_NUMBER_BYTES = 8
MATCHED_AT = _ROW_AT + 1
"""The place in a record of the byte that is 1 if it has matched."""
_HEAD_BYTES = _RECORD.size - _ROW_AT
_PLACE_BYTES = 1 + _ROW_AT
"""The size of what follows a record's key in the table: the side, the time and the number."""


def records_of(
    side: Side,
    times: Sequence[int],
    number: int,
    matched: Iterable[bool],
    late_before: Sequence[int],
    values: Sequence[bytes],
) -> list[bytes]:
    """Return records with these encoded values, numbered from `number` on."""
    return list(map(add, map(_RECORD.pack, times, count(number), repeat(side), matched, late_before), values))


def rows_of(side: Side, keys: Sequence[bytes], records: Sequence[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Return the keys of records in the table, and their rows."""
    of_side = bytes((side,))
    raws = [key + of_side + record[:_ROW_AT] for key, record in zip(keys, records, strict=True)]
    return raws, [record[_ROW_AT:] for record in records]


def record_of(raw: bytes, row: bytes) -> bytes:
    """Return the record of a row."""
    return raw[-_ROW_AT:] + row


def older_records(
    rows: Iterable[tuple[bytes, bytes]], keys: Container[bytes], number: int
) -> Iterator[tuple[bytes, bytes]]:
    """Return the keys and the records of rows that were found between two of each key, those with a lower number, in order.

    Args:
        rows: Some of them perhaps twice: rows of a key can lie between two rows of a shorter key.
        keys: The keys that count: others can lie in between, too.
        number: The number.
    """
    limit = number.to_bytes(_NUMBER_BYTES)
    for raw, row in sorted(dict(rows).items()):
        key = raw[:-_PLACE_BYTES]
        if key in keys and raw[-_NUMBER_BYTES:] < limit:
            yield key, raw[-_ROW_AT:] + row


def times_of(record: bytes) -> tuple[int, bool, int]:
    """Return the event time of a record, whether it has matched, and its `late_before`."""
    return _TIMES.unpack_from(record)


def as_matched(record: bytes) -> bytes:
    """Return a record as one that has matched."""
    return record[:MATCHED_AT] + b"\1" + record[MATCHED_AT + 1 :]


def replace_record(records: list[bytes], old: bytes, new: bytes) -> None:
    """Put a record in the place of another one of the same time and number, if that is one of these, which are in order."""
    at = bisect_left(records, old)
    if at < len(records) and records[at] == old:
        records[at] = new


class WaitingRecords(ItemCodec[bytes]):
    """The codec of rows that stay encoded.

    Args:
        left: The codec of the values of the left stream.
        right: The codec of the values of the right stream.
    """

    def __init__(self, left: Codec[Any], right: Codec[Any]) -> None:
        self._values = row_codec(left), row_codec(right)
        self._decoded = WaitingCodec(left, right)

    def encode(self, value: bytes) -> bytes:
        return value

    def decode(self, data: bytes) -> bytes:
        if len(data) < _HEAD_BYTES:
            raise DeserializationError(f"{data[:20]!r} is no record that waits to be joined")
        return data

    def next_row(self, number: int) -> bytes:
        """Return the row that holds the number of the next record."""
        return self._decoded.encode(next_row(number))

    def next_number(self, row: bytes | None) -> int:
        """Return the number in this row; 0 if there is none yet."""
        return 0 if row is None else self._decoded.decode(row).late_before

    def encoded(self, side: Side, values: Sequence[Any]) -> list[bytes]:
        """Encode values of one side. Raises `SerializationError`."""
        return list(map(self._values[side].encode, values))

    def values(self, side: Side, records: Sequence[bytes]) -> Sequence[Any]:
        """Decode the values of records of one side together. Raises `Fatal`: one cannot be decoded."""
        data = [record[_RECORD.size :] for record in records]
        return stored_values(self._values[side], data, "the value of a record that waits to be joined")

    def values_of_both(self, sides: Sequence[Side], records: Sequence[bytes]) -> Sequence[Any]:
        """Decode the values of records of both sides, as `values`."""
        each = {
            side: iter(self.values(side, list(compress(records, [other == side for other in sides]))))
            for side in set(sides)
        }
        return [next(each[side]) for side in sides]

    def __repr__(self) -> str:
        # The bytes are the same, and a group that was started before knows them by this name.
        return repr(self._decoded)
