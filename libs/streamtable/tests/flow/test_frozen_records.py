"""Frozen waiting records: found by key and time, whatever the keys and their hashes."""

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from streamtable.flow.joins.frozen_records import FrozenRecords, KeySpans
from streamtable.flow.joins.rules import LEFT
from streamtable.flow.joins.waiting_records import as_matched, records_of


class Alike(bytes):
    """A key with the same hash as all others of this type."""

    def __hash__(self) -> int:
        return 7

    def __eq__(self, other: object) -> bool:
        return bytes(self) == other


KEYS = st.binary(max_size=4)
TIMES = st.integers(0, 50)
ROWS = st.lists(st.tuples(KEYS, TIMES, st.binary(max_size=40)))


def made(times: Sequence[int], values: Sequence[bytes]) -> list[bytes]:
    """Return records of these times and values, numbered from 0 on."""
    return records_of(LEFT, times, 0, [False] * len(times), [-1] * len(times), values)


def looked_up(frozen: FrozenRecords, spans: Mapping[bytes, tuple[int, int]]) -> list[tuple[bytes, bytes]]:
    """Return the keys and the records that are found in these spans of time."""
    since, until = ([span[each] for span in spans.values()] for each in (0, 1))
    found = frozen.of(KeySpans(spans.keys(), since, until))
    return sorted((bytes(key), record) for key, record, _ in found)


@given(ROWS, st.dictionaries(KEYS, st.tuples(TIMES, TIMES)), st.sampled_from([bytes, Alike]))
def test_all_records_of_a_key_in_its_span_of_time_are_found_and_no_others(
    rows: list[tuple[bytes, int, bytes]], spans: dict[bytes, tuple[int, int]], kind: type[bytes]
) -> None:
    records = made([time for _, time, _ in rows], [value for _, _, value in rows])
    frozen = FrozenRecords([kind(key) for key, _, _ in rows], records)
    expected = sorted(
        (key, record)
        for (key, time, _), record in zip(rows, records, strict=True)
        if key in spans and spans[key][0] <= time <= spans[key][1]
    )
    assert looked_up(frozen, {kind(key): span for key, span in spans.items()}) == expected


def test_records_larger_than_64_kb_are_found_beside_small_ones() -> None:
    keys = [b"small", b"k" * 70_000, b"large"]
    records = made([1, 2, 3], [b"", b"v", b"v" * 100_000])
    frozen = FrozenRecords(keys, records)
    assert looked_up(frozen, dict.fromkeys(keys, (1, 3))) == sorted(zip(keys, records, strict=True))


def test_a_record_that_is_marked_as_matched_changes_nothing_else() -> None:
    keys = [b"a", b"b", b"a"]
    records = made([1, 2, 3], [b"v"] * 3)
    frozen = FrozenRecords(keys, records)
    ((_, _, at),) = frozen.of(KeySpans([b"a"], [3], [3]))
    frozen.mark_matched(at)
    expected = [(b"a", records[0]), (b"a", as_matched(records[2])), (b"b", records[1])]
    assert looked_up(frozen, {b"a": (0, 9), b"b": (0, 9)}) == expected


def test_the_hashes_are_those_of_the_keys() -> None:
    keys = [b"a", b"b", b"a"]
    assert sorted(FrozenRecords(keys, made([1, 2, 3], [b"v"] * 3)).hashes) == sorted(map(hash, keys))


def test_records_take_their_bytes_and_few_more() -> None:
    keys = [b"key-%d" % number for number in range(1_000)]
    records = made([1] * 1_000, [b"value"] * 1_000)
    frozen = FrozenRecords(keys, records)
    assert frozen.memory == sum(map(len, keys)) + sum(map(len, records)) + 1_000 * (8 + 2 + 1)
