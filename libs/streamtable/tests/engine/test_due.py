"""State tables whose keys alone decide when their rows are due: the function `times`, and its index entries."""

from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from streamtable import Long, State, String
from streamtable.engine.named.state import KeptState
from streamtable.errors import Fatal
from streamtable.graph.due import Due
from streamtable.store.memory import MemoryStores

Times = Callable[[Sequence[bytes]], Sequence[int | None]]


def kept(times: Times) -> KeptState:
    """Return a state with two changed rows that have not been looked at."""
    due = Due[str, int](lambda _, __: 7, lambda _: None, keep=timedelta(days=1), by_key=True, times=times)
    state = State("t", key=String(), value=Long(), due=due)
    found = KeptState(state, MemoryStores().open("t", 0), 1_000_000, 1 << 20)
    found.table.put(b"a", 1)
    found.table.put(b"b", 2)
    return found


def test_times_for_fewer_keys_than_were_given_are_refused() -> None:
    state = kept(lambda _: [7])
    assert state.index is not None
    with pytest.raises(Fatal, match="returned 1 times for 2 keys"):
        state.index.look()
    with pytest.raises(Fatal, match="returned 1 times for 2 keys"):
        list(state.rows(state.changes()))


def test_an_error_that_only_times_raises_is_not_hidden() -> None:
    def broken(_: Sequence[bytes]) -> Sequence[int | None]:
        raise ValueError("too many")

    state = kept(broken)
    assert state.index is not None
    with pytest.raises(Fatal, match="`times` of a state table raised ValueError: too many"):
        state.index.look()


def committed_keys(state: KeptState) -> list[bytes]:
    """Commit the changes. Returns the keys that were written to the store: of rows, and of entries of the index."""
    assert state.index is not None
    state.index.look()
    rows = list(state.rows(state.changes()))
    state.store.write(rows, b"")
    state.committed()
    state.index.committed()
    return [key for key, _ in rows]


def test_a_row_that_is_written_again_keeps_its_entry_in_the_index() -> None:
    state = kept(lambda keys: [7] * len(keys))
    entries = [b"d" + (7).to_bytes(8) + key for key in (b"a", b"b")]
    assert committed_keys(state) == [*entries, b"ra", b"rb"]
    for _ in range(2):
        state.table.put(b"a", 3)
        assert committed_keys(state) == [b"ra"]
    state.table.put(b"a", None)
    assert committed_keys(state) == [entries[0], b"ra"]


def test_a_row_that_was_appended_has_an_entry_at_the_time_that_came_with_it() -> None:
    state = kept(lambda keys: [7] * len(keys))
    state.table.append([b"d", b"c"], [4, 5], [9, 8])
    assert committed_keys(state) == [
        *(b"d" + at.to_bytes(8) + key for at, key in ((7, b"a"), (7, b"b"), (8, b"c"), (9, b"d"))),
        *(b"ra", b"rb", b"rc", b"rd"),
    ]
