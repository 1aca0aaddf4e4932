"""Columns have the values of a reader, for any supported schema and any bytes."""

import sys
import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exactavro import Malformed, Schema, decode, encode, make_reader, make_writer
from exactavro.columns import ColumnReader, make_column_reader

PATIENT = settings(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
MB = 1_000_000
PREFIX = b"\xc3\x01\x92\x00\xff\x7f\x80\x0a\x0b\xfe"
TEXTS = st.one_of(st.text(max_size=8), st.text("abc", max_size=8), st.sampled_from(["x" * 70, "é" * 64]))
TYPES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1) | st.integers(-70, 70)),
    ("long", st.integers(-(2**63), 2**63 - 1) | st.integers(-70, 70)),
    ("float", st.floats(width=32)),
    ("double", st.floats()),
    ("string", TEXTS),
    ("bytes", st.binary(max_size=8)),
    (
        {"type": "enum", "symbols": [f"S{number}" for number in range(70)]},
        st.integers(0, 69).map("S{}".format),
    ),
    ({"type": "fixed", "size": 3}, st.binary(min_size=3, max_size=3)),
]
WOUNDS = [
    b"",
    b"\x00",
    b"\x01",
    b"\x02",
    b"\x7f",
    b"\x80",
    b"\xc3",
    b"\xe9",
    b"\xed\xa0\x80",
    b"\xff" * 9 + b"\x01",
]
WOUNDS += [b"\xfe" + b"\xff" * 8 + b"\x01", b"\x80" * 10, PREFIX]


@st.composite
def batches(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    """A record's schema, and values."""
    fields, values = [], {}
    for number in range(draw(st.integers(1, 5))):
        node, each = draw(st.sampled_from(TYPES))
        if isinstance(node, dict):
            node = {**node, "name": f"N{number}"}
        if node != "null" and draw(st.booleans()):
            node, each = draw(st.permutations(["null", node])), st.none() | each
        fields.append({"name": f"f{number}", "type": node})
        values[f"f{number}"] = each
    rows = draw(st.lists(st.fixed_dictionaries(values), min_size=1, max_size=8))
    return {"type": "record", "name": "R", "fields": fields}, rows


def reader_of(schema: Any, prefix: bytes = PREFIX) -> ColumnReader:
    made = make_column_reader(Schema.load(schema), prefix)
    assert made is not None
    return made


def judge(schema: Any, messages: list[bytes], max_bytes: int = MB) -> None:
    """Assert that only valid messages are accepted, with the reader's values, alone and in a batch."""
    columns = reader_of(schema).read(messages, max_bytes)
    found = columns.values()
    for field in schema["fields"]:
        name = field["name"]
        assert repr(columns.values_of(name)) == repr([row and row[name] for row in found])
    read = make_reader(Schema.load(schema))
    assert len(found) == len(messages)
    for index, message in enumerate(messages):
        assert reader_of(schema).read([message], max_bytes).unsure == [0] * (index in columns.unsure)
        if index in columns.unsure:
            assert found[index] is None
        else:
            assert message.startswith(PREFIX)
            assert len(message) <= max_bytes
            assert repr(found[index]) == repr(decode(read, message, len(PREFIX)))


def readable(schema: Any) -> bool:
    return make_column_reader(Schema.load(schema), PREFIX) is not None


@settings(PATIENT, max_examples=200)
@given(batches())
def test_what_was_written_is_certain_and_comes_back(batch: tuple[Any, list[Any]]) -> None:
    schema, rows = batch
    if not readable(schema):
        assert all(field["type"] == "null" for field in schema["fields"])
        return
    write = make_writer(Schema.load(schema))
    messages = [PREFIX + encode(write, row) for row in rows]
    columns = reader_of(schema).read(messages, MB)
    assert columns.unsure == []
    expected = [decode(make_reader(Schema.load(schema)), each, len(PREFIX)) for each in messages]
    assert repr(columns.values()) == repr(expected)
    assert repr(columns.values()) == repr(expected), "a second call returns the same"


@settings(PATIENT, max_examples=400)
@given(batches(), st.data())
def test_whatever_is_done_to_the_bytes_nothing_is_accepted_that_a_reader_refuses(
    batch: tuple[Any, list[Any]], data: st.DataObject
) -> None:
    schema, rows = batch
    if not readable(schema):
        return
    write = make_writer(Schema.load(schema))
    messages = [PREFIX + encode(write, row) for row in rows]
    for _ in range(data.draw(st.integers(1, 4))):
        index = data.draw(st.integers(0, len(messages) - 1))
        body = bytearray(messages[index])
        start = data.draw(st.integers(min(len(body), data.draw(st.sampled_from([0, 10, 10, 10]))), len(body)))
        end = min(len(body), start + data.draw(st.integers(0, 3)))
        match data.draw(st.sampled_from(["replace", "flip", "cut", "swap", "empty"])):
            case "replace":
                body[start:end] = data.draw(st.sampled_from(WOUNDS) | st.binary(max_size=3))
            case "flip" if start < len(body):
                body[start] ^= 1 << data.draw(st.integers(0, 7))
            case "cut":
                del body[start:]
            case "swap":
                other = messages[data.draw(st.integers(0, len(messages) - 1))]
                body[start:] = other[start:]
            case _:
                body.clear()
        messages[index] = bytes(body)
    judge(schema, messages, data.draw(st.sampled_from([MB, MB, 20])))


@settings(PATIENT, max_examples=200)
@given(batches(), st.lists(st.binary(max_size=30), min_size=1, max_size=8))
def test_random_bytes_are_accepted_only_where_a_reader_reads_them(
    batch: tuple[Any, list[Any]], bodies: list[bytes]
) -> None:
    if readable(batch[0]):
        judge(batch[0], [PREFIX + body for body in bodies] + bodies)


CLICK = {
    "type": "record",
    "name": "Click",
    "fields": [{"name": "user", "type": "string"}, {"name": "at", "type": "long"}],
}


def click(user: str, at: int = 0, prefix: bytes = PREFIX) -> bytes:
    return prefix + encode(make_writer(Schema.load(CLICK)), {"user": user, "at": at})


@pytest.mark.parametrize("size", [0, 1, 4, 5, 7, 8, 9, 10, 16, 20])
def test_a_prefix_of_any_size_is_compared_to_its_last_byte(size: int) -> None:
    prefix = bytes(range(0xF0, 0xF0 - size, -1))
    reader = reader_of(CLICK, prefix)
    good = click("u", 1, prefix)
    assert reader.read([good, good], MB).unsure == []
    for place in range(size):
        wrong = bytearray(good)
        wrong[place] ^= 1
        assert reader.read([good, bytes(wrong), good], MB).unsure == [1]
    assert reader.read([good[:cut] for cut in range(len(good) + 1)], MB).unsure == list(range(len(good)))


def test_a_message_longer_than_the_limit_is_in_doubt_and_one_of_its_size_is_not() -> None:
    message = click("u" * 20)
    reader = reader_of(CLICK)
    assert reader.read([message, click("")], len(message)).unsure == []
    assert reader.read([message, click("")], len(message) - 1).unsure == [0]


def test_no_message_is_a_batch_too() -> None:
    columns = reader_of(CLICK).read([], MB)
    assert columns.unsure == []
    assert columns.values() == []


def test_texts_beyond_ascii_are_read_among_others_and_among_bad_ones() -> None:
    messages = [
        click("alice"),
        click("zoë", 2**40),
        b"",
        click("\U0001f600"),
        click("bob")[:-1],
        click("ÿ" * 100),
    ]
    columns = reader_of(CLICK).read(messages, MB)
    assert columns.unsure == [2, 4]
    users = [row and row["user"] for row in columns.values()]
    assert users == ["alice", "zoë", None, "\U0001f600", None, "ÿ" * 100]


def test_a_text_that_is_not_utf8_is_found_without_asking_for_values() -> None:
    broken = click("ab").replace(b"ab", b"\xc3\x28")
    assert reader_of(CLICK).read([click("ab"), broken], MB).unsure == [1]


@pytest.mark.parametrize("others", [0, 1, 5])
@pytest.mark.parametrize("high", [1, 2, 3, 10])
@pytest.mark.parametrize("at", [0, 2**20, 2**60, -(2**63)])
def test_no_byte_of_a_number_or_prefix_hides_one_of_a_text(others: int, high: int, at: int) -> None:
    bad = click("x" * high, at).replace(b"x", b"\xff")
    reader = reader_of(CLICK)
    assert reader.read([bad] + [click("x", at)] * others, MB).unsure == [0]
    for prefix in (bytes(10), b"\xff" * 10, PREFIX[:9] + b"\x00"):
        assert reader.read([click("x", at, prefix)] * others + [bad], MB).unsure == list(range(others + 1))


@pytest.mark.parametrize("node", ["float", "double", "int", "long", ["null", "double"]])
def test_no_byte_of_a_number_of_any_type_hides_one_of_a_text(node: Any) -> None:
    fields = [{"name": "text", "type": "string"}, {"name": "number", "type": node}]
    schema = {"type": "record", "name": "R", "fields": fields}
    write = make_writer(Schema.load(schema))
    for number in (-1, 0, 64, -3, 2**20 + 1):
        for high in range(1, 9):
            message = encode(write, {"text": "x" * high, "number": number}).replace(b"x", b"\xff")
            assert reader_of(schema, b"").read([message], MB).unsure == [0]


def test_a_good_text_beside_a_broken_one_of_the_same_message_is_left_to_the_reader() -> None:
    fields = [{"name": name, "type": "string"} for name in "ab"]
    reader = reader_of({"type": "record", "name": "R", "fields": fields}, b"")
    columns = reader.read([b"\x02a\x02b", b"\x04\xc3\xa9\x02\xff"], MB)
    assert columns.unsure == [1]
    assert columns.values() == [{"a": "a", "b": "b"}, None]


def test_each_call_for_values_gives_rows_of_their_own() -> None:
    columns = reader_of(CLICK).read([click("a")], MB)
    columns.values()[0]["user"] = "changed"
    assert columns.values() == [{"user": "a", "at": 0}]


@pytest.mark.parametrize("schema", ["long", {"type": "array", "items": "long"}, ["null", "long"]])
def test_what_is_no_record_is_not_read_by_columns(schema: Any) -> None:
    assert make_column_reader(Schema.load(schema), b"") is None


@pytest.mark.parametrize("types", [[], ["null", "null"]])
def test_a_record_of_nothing_is_not_read_by_columns(types: list[str]) -> None:
    fields = [{"name": f"f{number}", "type": node} for number, node in enumerate(types)]
    assert make_column_reader(Schema.load({"type": "record", "name": "R", "fields": fields}), b"") is None


def test_names_that_are_words_of_python_are_names_of_fields_too() -> None:
    names = ["class", "text", "data", "rows", "c0", "None", "lambda"]
    fields = [{"name": name, "type": "string"} for name in names]
    schema = {"type": "record", "name": "R", "fields": fields}
    row = {name: name for name in names}
    data = PREFIX + encode(make_writer(Schema.load(schema)), row)
    assert reader_of(schema).read([data], MB).values() == [row]


def test_a_record_of_a_thousand_fields_is_read() -> None:
    fields = [{"name": f"f{number}", "type": ["null", "string"]} for number in range(1_000)]
    schema = {"type": "record", "name": "R", "fields": fields}
    row = {f"f{number}": str(number) if number % 2 else None for number in range(1_000)}
    data = PREFIX + encode(make_writer(Schema.load(schema)), row)
    assert reader_of(schema).read([data] * 3, MB).values() == [row] * 3


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([click("u" * 200)] * 5_000, id="good"),
        pytest.param([click("é" * 100)[:-1]] * 5_000, id="bad"),
        pytest.param([b""] * 100_000, id="empty"),
        pytest.param([PREFIX + b"\xff" * 990] * 1_000, id="endless numbers"),
        pytest.param([click("u" * 2_000 + "\U0001f600")] * 500, id="wide text"),
        pytest.param([PREFIX + b"\xff" * 100_000] * 10, id="large"),
        pytest.param([click("")] * 50_000, id="small"),
    ],
)
def test_checking_takes_no_more_memory_than_stated(messages: list[bytes]) -> None:
    reader = reader_of(CLICK)
    tracemalloc.start()
    try:
        reader.read(messages, MB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * sum(map(len, messages)) + (24 * 2 + 100) * len(messages) + 50_000


def test_plain_messages_are_not_looked_at_a_second_time() -> None:
    fields = [
        {"name": f"f{number}", "type": node}
        for number, node in enumerate(["string", "long", "double", "float"])
    ]
    schema = {"type": "record", "name": "R", "fields": fields}
    row = {"f0": "x" * 500, "f1": -(2**60), "f2": -1.1, "f3": -2.0}
    messages = [PREFIX + encode(make_writer(Schema.load(schema)), row)] * 2_000
    reader = reader_of(schema)
    tracemalloc.start()
    try:
        assert reader.read(messages, MB).unsure == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * sum(map(len, messages)), (
        "more than the messages, and which of their bytes are above 127"
    )


def test_wide_records_that_end_early_take_no_memory_for_each_field() -> None:
    fields = [{"name": f"f{number}", "type": ["null", "string"]} for number in range(1_000)]
    reader = reader_of({"type": "record", "name": "R", "fields": fields})
    messages = [PREFIX] * 20_000
    tracemalloc.start()
    try:
        assert len(reader.read(messages, MB).unsure) == 20_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * sum(map(sys.getsizeof, messages))


def test_a_lone_bad_message_is_refused_by_the_reader_that_it_is_left_to() -> None:
    columns = reader_of(CLICK).read([click("a") + b"\x00"], MB)
    assert columns.unsure == [0]
    with pytest.raises(Malformed, match="1 bytes are left"):
        decode(make_reader(Schema.load(CLICK)), click("a") + b"\x00", len(PREFIX))
