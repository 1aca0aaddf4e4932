"""Waiting records of a join as bytes."""

from streamtable.flow.joins.rules import LEFT
from streamtable.flow.joins.waiting_records import (
    as_matched,
    older_records,
    record_of,
    records_of,
    rows_of,
    times_of,
)


def made(*keys: bytes, number: int = 0) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """Return left records of these keys, numbered from `number` on, their keys in the table, and their rows."""
    times = list(range(100, 100 + len(keys)))
    records = records_of(LEFT, times, number, [False] * len(keys), [7] * len(keys), [b"value"] * len(keys))
    return records, *rows_of(LEFT, keys, records)


def test_a_match_changes_nothing_else_of_a_record() -> None:
    (record,), _, _ = made(b"a")
    matched = as_matched(record)
    assert (times_of(record), times_of(matched)) == ((100, False, 7), (100, True, 7))
    assert len(matched) == len(record)
    assert matched.endswith(b"value")
    assert as_matched(matched) == matched


def test_a_record_is_its_row_and_what_its_key_ends_with() -> None:
    records, raws, rows = made(b"", b"key")
    assert [record_of(raw, row) for raw, row in zip(raws, rows, strict=True)] == records


def test_records_in_memory_and_those_of_other_keys_are_not_read_as_older_ones() -> None:
    records, raws, rows = made(b"a", b"a", b"ab", b"a", number=5)
    found = list(zip(raws, rows, strict=True))
    assert list(older_records(found, {b"a"}, number=8)) == [(b"a", each) for each in records[:2]]
    assert list(older_records(found, {b"a"}, number=6)) == [(b"a", records[0])]


def test_a_record_that_lies_in_the_ranges_of_two_keys_is_read_once_and_in_order() -> None:
    records, raws, rows = made(b"a", b"ab", number=5)
    found = list(zip(raws, rows, strict=True))
    assert list(older_records([found[1], *found], {b"a", b"ab"}, number=9)) == [
        (b"a", records[0]),
        (b"ab", records[1]),
    ]
