from typing import Any

import pytest

from streamtable.base.topics import Stream, Table, legal_name
from streamtable.codec.plain import Long, String
from streamtable.errors import GraphError
from streamtable.graph.group import Persist
from streamtable.graph.state import State
from streamtable.graph.timer import Timer

NO_CODECS: list[tuple[Any, str]] = [
    (String, r"String, which is a class: write String\(\)"),
    (str, "str, which is a class"),
    (lambda value: value, r"<function .* has no encode\(\) and decode\(\): give a codec"),
    (None, r"None, which has no encode\(\)"),
]
ILLEGAL: list[Any] = [None, 5, "", ".", "..", "a b", "a/b", "Ümlaut", "a\n", "a" * 250, "a:b"]


@pytest.mark.parametrize("name", ["a", "user-clicks", "A.b_c-9", "...", "a" * 249])
def test_names_that_kafka_accepts_are_accepted(name: str) -> None:
    assert legal_name(name, "stream") == name


@pytest.mark.parametrize("name", ILLEGAL)
def test_a_stream_or_table_that_kafka_would_refuse_is_refused_with_the_rule(name: Any) -> None:
    with pytest.raises(GraphError, match=r"stream .* 1 to 249"):
        Stream(name, String(), Long())
    with pytest.raises(GraphError, match=r"table .* 1 to 249"):
        Table(name, String(), Long())


def test_a_stream_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Stream("a", String(), Long()).name = "b"  # type: ignore[misc] # that is what must fail


def test_a_partitioner_that_is_unknown_is_refused_with_those_that_are_known() -> None:
    wrong: Any = "md5"
    with pytest.raises(GraphError, match=r"stream 'clicks' .* 'md5': choose 'murmur2' or 'fnv1a' or 'crc32'"):
        Stream("clicks", String(), Long(), partitioner=wrong)
    with pytest.raises(GraphError, match=r"table 'counts' .* 'md5': choose 'murmur2' or 'fnv1a' or 'crc32'"):
        Table("counts", String(), Long(), partitioner=wrong)


@pytest.mark.parametrize(("wrong", "reason"), NO_CODECS)
def test_what_is_no_codec_is_refused_wherever_a_codec_belongs(wrong: Any, reason: str) -> None:
    good: Any = String()
    makes: list[tuple[str, Any]] = [
        ("stream 's' has key=", lambda: Stream("s", wrong, good)),
        ("stream 's' has value=", lambda: Stream("s", good, wrong)),
        ("table 't' has key=", lambda: Table("t", wrong, good)),
        ("table 't' has value=", lambda: Table("t", good, wrong)),
        ("state 'n' has key=", lambda: State("n", key=wrong, value=good)),
        ("state 'n' has value=", lambda: State("n", key=good, value=wrong)),
        ("Persist has value=", lambda: Persist(wrong)),
        ("timer 'm' has payload=", lambda: Timer("m", print, wrong)),
    ]
    for what, make in makes:
        with pytest.raises(GraphError, match=what + reason):
            make()
