from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtable.base.types import HEADERS_UNREADABLE, Ack, BadToken, RecordBatch, TopicPartition

Make = Callable[..., RecordBatch]


def test_a_batch_has_its_columns_in_the_order_of_its_records(batch: Make) -> None:
    records = batch("t", [(b"a", b"1"), (None, None), (b"a", b"")], first=7, partition=3)
    assert records.keys == [b"a", None, b"a"]
    assert records.values == [b"1", None, b""]
    assert records.offsets == [7, 8, 9]
    assert (len(records), records.first_offset, records.last_offset) == (3, 7, 9)
    assert records.place == TopicPartition("t", 3)


def test_a_part_is_half_open_and_the_whole_part_is_the_batch_itself(batch: Make) -> None:
    records = batch("t", [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])
    assert records.part(1, 2).keys == [b"b"]
    assert len(records.part(3, 3)) == 0
    assert records.part(0, 3) is records


def test_only_keeps_the_chosen_records_with_their_own_offsets(batch: Make) -> None:
    kept = batch("t", [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")], first=5).only([True, False, True])
    assert (kept.keys, kept.offsets) == ([b"a", b"c"], [5, 7])


def test_headers_and_time_are_read_of_the_record_asked_for(record: Any) -> None:
    records = RecordBatch("t", 0, [record(b"a", b""), record(b"b", b"", 1, [("h", b"\xff")], 42)])
    assert list(records.headers(0)) == []
    assert list(records.headers(1)) == [("h", b"\xff")]
    assert records.timestamp(1) == 42


def test_a_place_reads_as_topic_and_number() -> None:
    assert str(TopicPartition("clicks", 4)) == "clicks[4]"


@given(
    st.from_regex(r"[A-Za-z0-9._-]{1,249}", fullmatch=True),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
)
def test_a_token_is_read_back_as_the_ack_that_it_was_made_of(topic: str, partition: int, offset: int) -> None:
    ack = Ack(topic, partition, offset)
    assert ack.token == f"{topic}:{partition}:{offset}"
    assert Ack.parse(ack.token) == ack


@pytest.mark.parametrize(
    "text",
    [
        "", "user-clicks", "user-clicks:3", "user-clicks:3:", ":3:4", "a:3:4:5", "a:-1:4", "a:3:+4", "a:03:4", "a:3:04",
        "a:3:4\n", " a:3:4", "a:3: 4", "a:3:1_0", "a:3:\u0663", "a b:3:4", "a" * 250 + ":3:4", "a:2147483648:4",
        "a:3:9223372036854775808", "a:3:" + "9" * 10_000,
    ],
)  # fmt: skip
def test_any_other_text_is_no_token(text: str) -> None:
    with pytest.raises(BadToken, match="not a token of an event") as raised:
        Ack.parse(text)
    assert len(str(raised.value)) < 500


def test_headers_are_read_one_record_after_the_other_also_where_one_has_names_that_are_no_text() -> None:
    class Record:
        """As the client's: it fails for such names, and keeps what it is given instead."""

        def __init__(self, headers: Any) -> None:
            self.found = headers

        def headers(self) -> Any:
            if isinstance(self.found, Exception):
                raise self.found
            return self.found

        def set_headers(self, headers: Any) -> None:
            self.found = headers

    bad = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
    messages: Any = [Record(None), Record([("h", b"1")]), Record(bad), Record([("h", b"2")])]
    records = RecordBatch("clicks", 0, messages)
    assert [dict(headers or ()) for headers in records.each_headers()] == [
        {},
        {"h": b"1"},
        dict([HEADERS_UNREADABLE]),
        {"h": b"2"},
    ]
