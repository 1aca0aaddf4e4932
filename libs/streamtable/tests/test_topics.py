from typing import Any

import pytest

from streamtable.codec.plain import Long, String
from streamtable.errors import GraphError
from streamtable.topics import Stream, Table, legal_name

ILLEGAL = ["", ".", "..", "a b", "a/b", "Ümlaut", "a\n", "a" * 250, "a:b"]


@pytest.mark.parametrize("name", ["a", "user-clicks", "A.b_c-9", "...", "a" * 249])
def test_names_that_kafka_accepts_are_accepted(name: str) -> None:
    assert legal_name(name, "stream") == name


@pytest.mark.parametrize("name", ILLEGAL)
def test_a_stream_or_table_that_kafka_would_refuse_is_refused_with_the_rule(name: str) -> None:
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
