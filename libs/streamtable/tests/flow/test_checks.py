"""What a flow is given and cannot use is refused when it is built, with what to write instead."""

from collections.abc import Callable
from typing import Any

import pytest

from streamtable import Json, Long, Stream, String
from streamtable.errors import GraphError
from streamtable.flow import Flow

NUMBERS: Any = Stream("numbers", String(), Long())


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
