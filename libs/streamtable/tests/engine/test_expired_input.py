"""An input that a version of the program did not read for so long that Kafka has forgotten its offset (KIP-211)."""

from typing import Any

import pytest

from streamtable import Context, Group, Input, Long, Persist, Stream, String
from streamtable.errors import InputLost
from streamtable_testing.tester import Tester

A = Stream[str, str]("a", String(), String())
B = Stream[str, str]("b", String(), String())


def count(ctx: Context[str, int], _: str) -> None:
    ctx.set((ctx.value or 0) + 1)


def version(*inputs: Stream[str, str]) -> Group[str, Any]:
    return Group("g", *(Input(each, count) for each in inputs), Persist(Long()))


@pytest.mark.parametrize("versions_between", [0, 1, 3])
def test_it_is_refused_instead_of_counted_twice(tester: Tester, versions_between: int) -> None:
    both, one = version(A, B), version(A)
    tester.run(both)
    tester.emit(A, "k", "1")
    tester.emit(B, "k", "2")
    tester.stop(both)
    for _ in range(versions_between):
        tester.start(one)
        tester.emit(A, "k", "more")
        tester.stop(one)
    tester.kafka.group("g").offsets.forget("b")
    with pytest.raises(
        InputLost, match=r"no committed offset for this input any more, but has read it.*\(b\[0\]\)"
    ):
        tester.start(both)
    assert tester.table(both) == {"k": 2 + versions_between}


def test_one_that_comes_back_before_its_offset_has_expired_continues(tester: Tester) -> None:
    both, one = version(A, B), version(A)
    tester.run(both)
    tester.emit(B, "k", "1")
    tester.stop(both)
    tester.start(one)
    tester.emit(A, "k", "2")
    tester.stop(one)
    tester.emit(B, "k", "3")
    tester.start(both)
    assert tester.table(both) == {"k": 3}
