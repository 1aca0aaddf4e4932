from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtable.base.deadletter import PREFIX, Origin, OutputRecord, dead_letter, replayed_marker
from streamtable.base.types import RecordBatch
from streamtable.errors import DeserializationError, HandlerFailed

# What Kafka adds: 61 bytes for a batch, and up to 21 for a record's own lengths and differences.
KAFKA_OVERHEAD = 61 + 21


def letter_of(record: Any, error: Any = None, *, bytes_max: int = 1_000_000, **changes: Any) -> OutputRecord:
    records = RecordBatch("in", 3, [record])
    given_: dict[str, Any] = {
        "origin": Origin.of(records, 0),
        "group": "g",
        "topic": "g-dead-letters",
        "now": 1234.5678,
        "bytes_max": bytes_max,
    }
    return dead_letter(records, 0, error or DeserializationError("bad"), **given_ | changes)


def size_in_kafka(letter: OutputRecord) -> int:
    """As the record format has it: lengths are varints of at most three bytes here, zigzag-encoded."""

    def varint(n: int) -> int:
        return max(1, ((2 * n).bit_length() + 6) // 7)

    body = sum(len(part) for part in (letter.key, letter.value) if part is not None)
    for name, value in letter.headers:
        body += varint(len(name.encode())) + len(name.encode())
        body += varint(len(value or b"")) + len(value or b"")
    return body + KAFKA_OVERHEAD


def test_a_dead_letter_is_the_record_itself_and_says_where_from_why_and_when(record: Any) -> None:
    letter = letter_of(record(b"k", b"\xff\x00", 42, [("h", b"\xfe"), ("h", None)], 777))
    assert letter[:3] == ("g-dead-letters", b"k", b"\xff\x00")
    assert letter.partition == 3
    assert list(letter.headers) == [
        ("h", b"\xfe"),
        ("h", None),
        ("streamtable-origin-topic", b"in"),
        ("streamtable-origin-partition", b"3"),
        ("streamtable-origin-offset", b"42"),
        ("streamtable-origin-timestamp-ms", b"777"),
        ("streamtable-error", b"DeserializationError"),
        ("streamtable-message", b"bad"),
        ("streamtable-attempt", b"1"),
        ("streamtable-group", b"g"),
        ("streamtable-time-ms", b"1234567"),
    ]


@pytest.mark.parametrize("written_ms", [-5, 777, 2**62])
def test_a_dead_letter_is_dated_when_it_is_made_so_that_its_topic_accepts_and_keeps_it(
    record: Any, written_ms: int
) -> None:
    letter = letter_of(record(b"k", b"v", 42, [], written_ms))
    assert letter.timestamp_ms == 1_234_567
    assert ("streamtable-origin-timestamp-ms", b"%d" % written_ms) in letter.headers


def test_the_error_is_named_by_what_caused_it(record: Any) -> None:
    failed = HandlerFailed("the handler raised")
    failed.__cause__ = ZeroDivisionError()
    assert dict(letter_of(record(b"k", b"v"), failed).headers)["streamtable-error"] == b"ZeroDivisionError"


def test_an_origin_survives_its_way_through_the_headers_and_counts_the_attempts(record: Any) -> None:
    first = letter_of(record(b"k", b"v", 42, None, -1))
    origin = Origin.read(first.headers)
    assert origin == Origin("in", 3, 42, -1, attempt=1)
    again = letter_of(record(b"k", b"v", 7, first.headers), origin=origin)
    assert Origin.read(again.headers) == Origin("in", 3, 42, -1, attempt=2)
    assert [name for name, _ in again.headers].count("streamtable-origin-offset") == 1


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (b"777", 777),
        (b"-1", -1),
        (b"-2", -1),
        (b"%d" % 2**63, -1),
        (b"%d" % (2**63 - 1), 2**63 - 1),
        (None, -1),
    ],
)
def test_a_record_that_was_sent_again_has_the_timestamp_of_its_origin_if_that_is_one(
    record: Any, said: bytes | None, found: int
) -> None:
    headers = [header for header in letter_of(record(b"k", b"v", 42)).headers if "timestamp" not in header[0]]
    headers.append((PREFIX + "origin-timestamp-ms", said))
    retried = RecordBatch("g-retry", 3, [record(b"k", b"v", 7, headers, 999)])
    origin = Origin.read(headers)
    assert origin is not None
    dated = origin.dated(retried)
    assert (dated.timestamp(0), dated.timestamps()) == (found, [found])
    assert (dated.place, dated.keys, dated.values, dated.offsets) == (("g-retry", 3), [b"k"], [b"v"], [7])
    assert dated.headers(0) == headers


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(PREFIX + "origin-topic", b"in")],
        [
            (PREFIX + "origin-topic", b"\xff"),
            (PREFIX + "origin-partition", b"0"),
            (PREFIX + "origin-offset", b"0"),
        ],
        [
            (PREFIX + "origin-topic", b"in"),
            (PREFIX + "origin-partition", b"x"),
            (PREFIX + "origin-offset", b"0"),
        ],
        [
            (PREFIX + "origin-topic", b"in"),
            (PREFIX + "origin-partition", None),
            (PREFIX + "origin-offset", b"0"),
        ],
        [
            (PREFIX + "origin-topic", b"in"),
            (PREFIX + "origin-partition", b"0"),
            (PREFIX + "origin-offset", b"9" * 5000),
        ],
    ],
    ids=["none", "some", "not UTF-8", "no number", "null", "too many digits"],
)
def test_headers_that_name_no_origin_are_none(headers: Any) -> None:
    assert Origin.read(headers) is None


def test_a_value_that_does_not_fit_is_left_out_and_its_size_said(record: Any) -> None:
    letter = letter_of(record(b"k", b"v" * 5_000, 0, [("h", b"x")]), bytes_max=5_000)
    assert (letter.key, letter.value) == (b"k", None)
    assert dict(letter.headers)["streamtable-value-omitted-bytes"] == b"5000"
    assert Origin.read(letter.headers) is not None


@pytest.mark.parametrize(
    ("key", "headers", "kept"),
    [(b"k", [("h", b"x" * 5_000)], b"k"), (b"k" * 5_000, [("h", b"x")], None), (b"k", [("h", b"x")], b"k")],
)
def test_a_tombstone_whose_headers_or_key_do_not_fit_says_so_with_0_bytes(
    key: bytes, headers: Any, kept: bytes | None, record: Any
) -> None:
    letter = letter_of(record(key, None, 0, headers), bytes_max=5_000)
    assert (letter.key, letter.value) == (kept, None)
    omitted = dict(letter.headers).get("streamtable-value-omitted-bytes")
    assert omitted == (None if ("h", b"x") in letter.headers else b"0")


@given(
    key=st.one_of(st.none(), st.integers(0, 3_000).map(lambda n: b"k" * n)),
    value=st.one_of(st.none(), st.integers(0, 3_000).map(lambda n: b"v" * n)),
    headers=st.integers(0, 1_500).map(lambda n: [("n", b"1")] * n),
    message=st.sampled_from(["short", "x" * 5_000, "\U0001f600" * 5_000]),
)
def test_whatever_the_record_its_dead_letter_fits_the_topic(
    key: bytes | None, value: bytes | None, headers: Any, message: str
) -> None:
    class Raw:
        def key(self) -> bytes | None:
            return key

        def value(self) -> bytes | None:
            return value

        def offset(self) -> int:
            return 0

        def headers(self) -> Any:
            return headers

        def timestamp(self) -> tuple[int, int]:
            return (0, -1)

    letter = letter_of(Raw(), DeserializationError(message), bytes_max=6_000)
    assert size_in_kafka(letter) <= 6_000
    assert Origin.read(letter.headers) == Origin("in", 3, 0, -1, 1)


def test_the_size_of_an_output_is_not_less_than_what_kafka_stores() -> None:
    many = OutputRecord("out", b"k", b"v", [("", b"")] * 10_000)
    assert many.size + 128 >= size_in_kafka(many)


def test_a_marker_names_the_letter_that_was_sent_again_and_is_no_letter_itself() -> None:
    marker = replayed_marker("g-dead-letters", 3, 17, group="g", now=1.5)
    assert (marker.topic, marker.partition, marker.key, marker.value) == ("g-dead-letters", 3, None, None)
    assert dict(marker.headers) == {
        "streamtable-replayed-offset": b"17",
        "streamtable-group": b"g",
        "streamtable-time-ms": b"1500",
    }
    assert Origin.read(marker.headers) is None
