"""The filter of the keys that have rows: it may say yes for a key without rows, never no for one with rows."""

import pickle
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from streamtable.flow.joins.key_filter import KeyFilter

KEYS = st.lists(st.binary(max_size=12), max_size=200)


def many(number: int, prefix: str = "key") -> list[int]:
    """Return the hashes of so many keys."""
    return hashes([f"{prefix}-{each}".encode() for each in range(number)])


def hashes(keys: Iterable[bytes]) -> list[int]:
    return list(map(hash, keys))


@given(st.lists(st.tuples(KEYS, st.integers(0, 1000)), max_size=10), KEYS, st.integers(0, 1100))
def test_a_key_with_rows_that_are_not_gone_is_never_denied(
    added: list[tuple[list[bytes], int]], asked: list[bytes], gone_before_ms: int
) -> None:
    keys = KeyFilter(None)
    for each, due_ms in added:
        keys.add(hashes(each), due_ms)
    present = {key for each, due_ms in added if due_ms >= gone_before_ms for key in each}
    found = keys.may_have(hashes(asked), gone_before_ms)
    assert len(found) == len(asked)
    assert all(there for key, there in zip(asked, found, strict=True) if key in present)


def test_most_keys_without_rows_are_denied_also_when_there_are_many() -> None:
    keys = KeyFilter(None)
    for begin in range(0, 300_000, 10_000):
        keys.add(many(10_000, f"{begin}"), 10)
    assert all(keys.may_have(many(10_000, "290000"), 0))
    assert sum(map(bool, keys.may_have(many(10_000, "other"), 0))) < 4_000


def test_all_keys_may_have_rows_until_those_are_gone_that_were_there_before() -> None:
    keys = KeyFilter(50)
    assert all(keys.may_have(many(10), 50))
    assert not any(keys.may_have(many(10), 51))
    assert not any(keys.may_have(many(10), 40)), "deleted keys stay deleted"


def test_keys_are_forgotten_when_all_their_rows_are_gone() -> None:
    keys = KeyFilter(None)
    first, second = many(1 << 16, "first"), many(10, "second")
    keys.add(first, 100)
    keys.add(second, 200)
    assert all(keys.may_have(first, 100))
    assert sum(map(bool, keys.may_have(first, 101))) < 100
    assert all(keys.may_have(second, 101))


def test_keys_that_are_added_at_once_fill_no_more_than_those_that_come_in_batches() -> None:
    keys = KeyFilter(None)
    keys.add(many(500_000), 10)
    assert sum(map(bool, keys.may_have(many(10_000, "other"), 0))) < 4_000


def test_memory_is_bounded_however_many_keys_there_are() -> None:
    keys, batch = KeyFilter(None), many(100_000)
    for _ in range(45):
        keys.add(batch, 10)
    assert 2_500_000 < len(pickle.dumps(keys)) < 3_300_000
    assert all(keys.may_have(batch, 0))


def test_a_million_keys_leave_most_others_denied() -> None:
    keys = KeyFilter(None)
    for begin in range(0, 1_000_000, 10_000):
        keys.add(hashes(number.to_bytes(8) for number in range(begin, begin + 10_000)), 10)
    others = hashes(number.to_bytes(8) for number in range(2_000_000, 2_010_000))
    assert sum(map(bool, keys.may_have(others, 0))) < 5_000
