from collections.abc import Callable

import pytest

from streamtable.engine.idfilter import IdFilter

COUNT = 4_000


@pytest.mark.parametrize(
    "make",
    [lambda number: number.to_bytes(16, "big"), lambda number: number.to_bytes(16, "little"),
     lambda number: (number << 64).to_bytes(16, "big"), lambda number: bytes(12) + number.to_bytes(4, "big")],
    ids=["last bytes", "first bytes", "middle bytes", "short"],
)  # fmt: skip
def test_the_filter_knows_what_was_added_and_tells_nearly_all_else_to_be_new(
    make: Callable[[int], bytes],
) -> None:
    ids = [make(number) for number in range(2 * COUNT)]
    found = IdFilter(COUNT * 10 // 8 * 2)
    found.add(ids[:COUNT])
    assert found.perhaps(ids[:COUNT]) == list(range(COUNT))
    assert len(found.perhaps(ids[COUNT:])) < COUNT // 30
