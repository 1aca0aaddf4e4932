import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtable.visiting import VisitProgress


@given(
    run=st.text(max_size=9),
    argument=st.text(max_size=9),
    cursor=st.binary(max_size=9),
    visited=st.integers(0, 1 << 40),
    done=st.booleans(),
)
def test_progress_is_what_was_written(
    run: str, argument: str, cursor: bytes, visited: int, *, done: bool
) -> None:
    progress = VisitProgress(run, argument, cursor.hex(), visited, done)
    assert VisitProgress.decode(progress.encode()) == progress


@given(st.one_of(st.none(), st.binary(max_size=60)))
def test_any_bytes_are_progress_or_none_and_never_an_error(value: bytes | None) -> None:
    found = VisitProgress.decode(value)
    assert found is None or VisitProgress.decode(found.encode()) == found


@pytest.mark.parametrize(
    "value",
    [
        b"[]",
        b"1",
        b"{}",
        b'{"run":"r"}',
        b'{"run":1,"argument":"","cursor":"","visited":0,"done":false}',
        b'{"run":"r","argument":"","cursor":"xy","visited":0,"done":false}',
        b'{"run":"r","argument":"","cursor":"","visited":0.5,"done":false}',
        b'{"run":"r","argument":"","cursor":"","visited":0,"done":0}',
    ],
)
def test_what_is_malformed_is_none(value: bytes) -> None:
    assert VisitProgress.decode(value) is None


def test_going_on_keeps_run_and_argument_and_adds_up() -> None:
    begun = VisitProgress("r", "a").went_on(b"\x01k", 3, done=False)
    assert begun == VisitProgress("r", "a", "016b", 3)
    assert begun.went_on(b"z", 2, done=True) == VisitProgress("r", "a", "7a", 5, done=True)
