import io

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtable.codec import Avro
from streamtable.graph.visiting import VISIT_PROGRESS_SCHEMA, VisitProgress


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
    progress = VisitProgress(run, argument, cursor, visited, done)
    assert VisitProgress.decode(progress.encode()) == progress


@given(st.one_of(st.none(), st.binary(max_size=60)))
def test_any_bytes_are_progress_or_none_and_never_an_error(value: bytes | None) -> None:
    found = VisitProgress.decode(value)
    assert found is None or VisitProgress.decode(found.encode()) == found


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b'{"run":"r","argument":"","cursor":"","visited":0,"done":false}',
        Avro("string").encode("r"),
        VisitProgress("r").encode() + b"\0",
        VisitProgress("r").encode()[:-1],
        VisitProgress("r", visited=-1).encode(),
    ],
)
def test_what_is_malformed_is_none(value: bytes) -> None:
    assert VisitProgress.decode(value) is None


def test_progress_is_avro_in_single_object_encoding() -> None:
    value = VisitProgress("run", "arg", b"\x00k", 3, done=True).encode()
    assert value[:2] == b"\xc3\x01"
    assert fastavro.schemaless_reader(io.BytesIO(value[10:]), VISIT_PROGRESS_SCHEMA, None) == {
        "run": "run",
        "argument": "arg",
        "cursor": b"\x00k",
        "visited": 3,
        "done": True,
    }


def test_going_on_keeps_run_and_argument_and_adds_up() -> None:
    begun = VisitProgress("r", "a").went_on(b"\x01k", 3, done=False)
    assert begun == VisitProgress("r", "a", b"\x01k", 3)
    assert begun.went_on(b"z", 2, done=True) == VisitProgress("r", "a", b"z", 5, done=True)
