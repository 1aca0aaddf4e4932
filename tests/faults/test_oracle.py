from collections import Counter

import pytest
from tests.faults.oracle import (
    OrderRow,
    digest,
    expected_total,
    follow,
    make_events,
    make_keys,
    parts,
    replayed,
    violations,
)

from streamtable.base.partitioner import partition_for


def test_a_key_says_how_many_events_it_gets() -> None:
    assert expected_total("k17-x250") == 250
    with pytest.raises(ValueError, match="invalid literal"):
        expected_total("alice")


def test_each_partition_gets_as_many_keys_as_the_others_and_about_the_total_is_sent() -> None:
    keys = make_keys(7, partitions=8, per_partition=5, total=4000)
    assert Counter(partition_for(key.encode(), 8) for key in keys) == dict.fromkeys(range(8), 5)
    assert 3000 < sum(map(expected_total, keys)) < 5000


def test_the_events_of_each_key_are_numbered_from_one_to_its_total_in_the_order_of_sending() -> None:
    keys = make_keys(7, 4, 3, 600)
    events = make_events(7, keys)
    for key in keys:
        assert [number for k, number in events if k == key] == list(range(1, expected_total(key) + 1))
    assert [key for key, _ in events] != sorted(key for key, _ in events)


def test_equal_seeds_make_equal_events_and_others_do_not() -> None:
    keys = make_keys(1, 4, 3, 600)
    assert make_events(1, keys) == make_events(1, keys) != make_events(2, keys)
    assert make_keys(2, 4, 3, 600) != keys == make_keys(1, 4, 3, 600)


def test_missing_lost_doubled_and_unknown_rows_are_distinguished() -> None:
    counts = {"a-x3": 3, "b-x3": 2, "c-x3": 5, "e-x3": 1}
    found = violations(counts, ["a-x3", "b-x3", "c-x3", "d-x3"])
    assert [(v.key, v.excess) for v in found] == [("b-x3", -1), ("c-x3", 2), ("d-x3", -3), ("e-x3", 1)]
    assert [str(v) for v in found] == [
        "b-x3: under (2 of 3)",
        "c-x3: over by 2 (5 of 3)",
        "d-x3: missing (None of 3)",
        "e-x3: over by 1 (1 of 0)",
    ]


def test_gaps_steps_back_and_repetitions_stay_in_the_row() -> None:
    row: OrderRow | None = None
    for number in (1, 2, 4, 3, 4, 5):
        row = follow(row, number)
    assert row == {"last": 5, "violations": ["4 after 2", "3 after 4", "4 after 4"]}


def test_a_digest_depends_on_each_byte_of_the_rows_and_not_on_their_order() -> None:
    rows = [(b"a", b"1"), (b"b", b"2")]
    assert digest(rows) == digest(reversed(rows)) == digest(iter(rows))
    others = ([(b"a", b"2"), (b"b", b"1")], [(b"a", b"1")], [(b"a1", b""), (b"b", b"2")], [*rows, (b"", b"")])
    assert len({digest(rows), *map(digest, others)}) == 5


def test_a_replay_keeps_the_last_value_of_each_key_and_drops_deleted_ones() -> None:
    records = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", None), (b"c", None)]
    assert replayed(records) == {b"a": b"2"}


def test_parts_are_all_events_once_and_in_order() -> None:
    events = make_events(3, make_keys(3, 2, 2, 100))
    cut = list(parts(events, 3))
    assert len(cut) == 3
    assert [event for part in cut for event in part] == events
