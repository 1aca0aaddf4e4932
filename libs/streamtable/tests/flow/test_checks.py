"""What a flow is given and cannot use is refused when it is built, with what to write instead."""

from collections.abc import Callable
from typing import Any

import pytest

from streamtable import Json, Long, Stream, String
from streamtable.errors import GraphError
from streamtable.flow import Flow
from streamtable_testing.tester import Tester

NUMBERS: Any = Stream("numbers", String(), Long())
OUT: Any = Stream("out", String(), Long())


# ---- codecs -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda s: s.key_by("x", str, key=String), r"key=String, which is a class: write String\(\)"),
        (lambda s: s.group_by("x", str, key=lambda v: v), r"key=.*no encode\(\) and decode\(\)"),
        (lambda s: s.repartition("x", value=Long), "value=Long, which is a class"),
        (lambda s: s.map_values(str, value=String), "map_values has value=String, which is a class"),
        (lambda s: s.to_table("x").map_values(str, value=String), "map_values has value=String"),
        (lambda s: s.group_by_key().count("x", value=Long), "value=Long, which is a class"),
        (lambda s: s.to_table("x").group_by("y", str, key=String(), value=Long), "value=Long, which is a"),
        (lambda s: s.process(print, value=Json), "process has value=Json, which is a class"),
    ],
)
def test_a_class_or_a_function_in_place_of_a_codec_is_refused(
    build: Callable[[Any], Any], reason: str
) -> None:
    with pytest.raises(GraphError, match=reason):
        build(Flow("f").stream(NUMBERS))


# ---- large flows ------------------------------------------------------------------------------------------------------------


def test_a_flow_of_many_branches_that_meet_again_is_built_and_described() -> None:
    flow = Flow("f")
    stream = flow.stream(NUMBERS)
    for _ in range(60):  # the number of paths doubles with each
        stream = stream.merge(*stream.split(bool))
    stream.process(lambda ctx, value: [value]).to(NUMBERS)
    assert [group.name for group in flow.groups] == ["f"]
    assert str(flow.describe()).count("split") < 1_000
    assert len(repr(stream._node)) < 1_000


def test_a_flow_may_have_more_steps_in_a_row_than_calls_can_be_nested(tester: Tester) -> None:
    flow = Flow("f")
    stream = flow.stream(NUMBERS)
    for _ in range(2_000):
        stream = stream.map_values(lambda value: value + 1, value=Long())
    stream.process(lambda ctx, value: [value], value=Long()).to(OUT)
    tester.run(flow)
    tester.emit(NUMBERS, "a", 1)
    assert [record.value for record in tester.records(OUT)] == [2_001]
    assert str(flow.describe()).count("map_values") == 2_000
