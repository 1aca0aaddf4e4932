"""Maps in rows of bounded size."""

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from tweet_reach.domain import pieces
from tweet_reach.domain.pieces import CHARACTERS_MAX, ENTRIES_MAX, Map, Maps, Piece, name_of
from tweet_reach.testing import MemoryRows

NAMES = st.sampled_from([f"name-{n}" for n in range(60)])
CHANGES = st.lists(st.tuples(st.sampled_from("ab"), NAMES, st.none() | st.integers(0, 9)), max_size=60)


def scanned(one: Map, step: int) -> list[tuple[str, int]]:
    entries, cursor = one.scan("", step)
    while cursor is not None:
        more, cursor = one.scan(cursor, step)
        entries += more
    return entries


@given(batches=st.lists(CHANGES, max_size=6), step=st.integers(1, 9))
def test_maps_hold_what_was_put_into_them_however_their_rows_are_cut(
    batches: list[list[tuple[str, str, int | None]]], step: int
) -> None:
    rows = MemoryRows[Piece]()
    expected: dict[str, dict[str, int]] = {"a": {}, "b": {}}
    with patch.object(pieces, "ENTRIES_MAX", 3), patch.object(pieces, "_LOOK", 5):
        for batch in batches:
            maps = Maps(rows)
            maps.load([(maps.of(name_of_map), [name]) for name_of_map, name, _ in batch])
            for name_of_map, name, number in batch:
                maps.of(name_of_map).put(name, number)
                if number is None:
                    expected[name_of_map].pop(name, None)
                else:
                    expected[name_of_map][name] = number
                assert maps.of(name_of_map).get(name) == number
            maps.save()
            assert all(len(piece) <= 3 for piece in rows.rows.values())
            for name_of_map, expected_entries in expected.items():
                for one in (maps, Maps(rows)):  # in the batch, and in the next
                    entries = scanned(one.of(name_of_map), step)
                    assert len(entries) == len(expected_entries)
                    assert dict(entries) == expected_entries


@given(before=st.sets(NAMES), meanwhile=st.sets(NAMES), step=st.integers(1, 9))
def test_a_scan_sees_once_what_is_there_throughout_though_rows_are_split_meanwhile(
    before: set[str], meanwhile: set[str], step: int
) -> None:
    rows = MemoryRows[Piece]()
    with patch.object(pieces, "ENTRIES_MAX", 3):
        maps = Maps(rows)
        for name in sorted(before):
            maps.of("a").put(name, 1)
        maps.save()
        entries, cursor = maps.of("a").scan("", step)
        for name in sorted(meanwhile):
            later = Maps(rows)
            later.of("a").put(name, 1)
            later.save()
            if cursor is not None:
                more, cursor = later.of("a").scan(cursor, step)
                entries += more
        while cursor is not None:
            more, cursor = Maps(rows).of("a").scan(cursor, step)
            entries += more
    seen = [name for name, _ in entries]
    assert len(seen) == len(set(seen))
    assert before <= set(seen) <= before | meanwhile


def test_no_row_of_a_large_map_is_larger_than_the_bounds() -> None:
    rows = MemoryRows[Piece]()
    maps = Maps(rows)
    for n in range(20_000):
        maps.of("followers").put(f"user-{n}", n)
        maps.of("urls").put(f"https://example.org/{n}/{'x' * (n % 2000)}", n)
    maps.save()
    for piece in rows.rows.values():
        assert len(piece) <= ENTRIES_MAX
        assert len(piece) == 1 or sum(map(len, piece)) <= CHARACTERS_MAX
    assert len(scanned(Maps(rows).of("followers"), 1000)) == 20_000


def test_a_small_map_is_read_in_one_round_trip_and_a_large_one_in_as_many_as_it_has_levels() -> None:
    rows = MemoryRows[Piece]()
    maps = Maps(rows)
    for n in range(5000):
        maps.of("large").put(f"user-{n}", n)
    maps.of("small").put("user-1", 1)
    maps.save()
    rows.reads = 0
    names = [f"user-{n}" for n in range(5000)]
    maps = Maps(rows)
    maps.load([(maps.of("small"), names[:100])])
    assert rows.reads == 1
    maps = Maps(rows)
    maps.load([(maps.of("small"), names), (maps.of("large"), names)])
    assert rows.reads == 1 + 3


def test_rows_without_entries_are_deleted() -> None:
    rows = MemoryRows[Piece]()
    for number in (1, None):
        maps = Maps(rows)
        maps.of("a").put("x", number)
        maps.save()
    assert rows.rows == {}


def test_names_of_parts_do_not_depend_on_where_one_ends_by_accident() -> None:
    assert name_of("a", "bc") != name_of("ab", "c")
    assert name_of("a") != name_of("a", "")
    assert len(name_of("x" * 5000)) == 32
