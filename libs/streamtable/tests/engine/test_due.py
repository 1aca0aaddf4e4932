"""The function `times` of `Due`, which says of many keys in one call when their rows are due."""

from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from streamtable import Long, State, String
from streamtable.due import Due
from streamtable.engine.state import KeptState
from streamtable.errors import Fatal
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
