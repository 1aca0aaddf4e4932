from collections.abc import Callable, Sequence
from random import Random

import pytest

from streamtable.engine.named.id_arrays import IdFilter, rows_in_order
from streamtable.graph.once import IdChunk

COUNT = 4_000


@pytest.mark.parametrize(
    "make",
    [lambda number: number.to_bytes(16, "big"), lambda number: number.to_bytes(16, "little"),
     lambda number: (number << 64).to_bytes(16, "big"), lambda number: bytes(12) + number.to_bytes(4, "big")],
    ids=["last bytes", "first bytes", "middle bytes", "short"],
)  # fmt: skip
def test_the_filter_finds_what_was_added_and_recognizes_nearly_all_else_as_new(
    make: Callable[[int], bytes],
) -> None:
    known, new = ([make(number) for number in range(begin, begin + COUNT)] for begin in (0, COUNT))
    found = IdFilter(COUNT * 10 // 8 * 2)
    found.add(b"".join(known[: COUNT // 2]))
    found.add(b"".join(known[COUNT // 2 :]))
    assert found.add(b"".join(known)) == list(range(COUNT))
    assert len(found.add(b"".join(new))) < COUNT // 30


def test_two_of_the_same_in_one_call_are_new_if_they_were_not_added_before() -> None:
    found = IdFilter(1024)
    assert found.add(bytes(32)) == []
    assert found.add(bytes(32)) == [0, 1]


@pytest.mark.parametrize("sizes", [[500], [1, 499], [100, 100, 300]])
def test_the_rows_of_chunks_are_those_that_python_makes_in_the_order_of_their_keys(
    sizes: Sequence[int],
) -> None:
    random = Random(3)
    chunks = []
    for size in sizes:
        ids = [random.randbytes(16) for _ in range(size)]
        chunks.append(IdChunk.of(ids, sorted(random.randint(-1, 50) for _ in ids)))
    expected = {
        b"p\0" + each: time.to_bytes(8, "big", signed=True) for chunk in chunks for each, time in chunk.each()
    }
    assert list(rows_in_order(b"p\0", chunks)) == sorted(expected.items())


def test_of_an_id_in_several_chunks_the_row_of_the_last_one_comes_last() -> None:
    random = Random(4)
    ids = [random.randbytes(16) for _ in range(200)]
    chunks = [IdChunk.of(random.sample(ids, 200), [time] * 200) for time in (1, 2, 3)]
    assert dict(rows_in_order(b"", chunks)) == dict.fromkeys(ids, (3).to_bytes(8, "big"))
