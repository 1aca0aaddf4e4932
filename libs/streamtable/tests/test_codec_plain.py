"""Codecs without a schema: what they write, and what they refuse."""

import math
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtable.codec import Bytes, Json, Long, String, Typed
from streamtable.codec.lazy import Lazy
from streamtable.errors import DeserializationError, SerializationError

if TYPE_CHECKING:
    from streamtable.base.ports import Codec

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@settings(deadline=None, database=None)
@given(st.text())
def test_a_string_comes_back_as_it_was(text: Any) -> None:
    assert String().decode(String().encode(text)) == text


@pytest.mark.parametrize("data", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"caf\xe9"])
def test_a_string_that_is_not_utf8_is_poison(data: Any) -> None:
    with pytest.raises(DeserializationError, match="UTF-8"):
        String().decode(data)


@pytest.mark.parametrize("value", ["\ud800", 5, b"x", None])
def test_a_string_refuses_what_utf8_cannot_hold(value: Any) -> None:
    with pytest.raises(SerializationError):
        String().encode(value)


def test_a_string_column_keeps_poison_with_its_index() -> None:
    decoded = String().decode_many([b"a", None, b"\xff", b"", b"b"])
    assert decoded.values == ["a", None, None, "", "b"]
    assert list(decoded.poison) == [2]


def test_a_column_of_ascii_is_checked_at_once_and_its_texts_are_made_when_looked_at() -> None:
    for column in (["a", "", "b"], [], ["\x00\x7f"]):
        decoded = String().decode_many([text.encode() for text in column])
        assert isinstance(decoded.values, Lazy)
        assert decoded.values == column
    for data in ([b"a", None], [b"\xc3", b"\xa9"], ["é".encode()]):
        assert not isinstance(String().decode_many(data).values, Lazy)
    assert list(String().decode_many([b"\xc3", b"\xa9"]).poison) == [0, 1], "a text in two halves is none"


def test_bytes_pass_unchanged_and_nothing_else_does() -> None:
    assert Bytes().decode(Bytes().encode(b"\x00\xff")) == b"\x00\xff"
    assert Bytes().decode_many([b"", None]).values == [b"", None]
    with pytest.raises(SerializationError):
        Bytes().encode("text")  # type: ignore[arg-type]  # the mistake under test


@pytest.mark.parametrize(
    ("number", "data"),
    [
        (0, "0000000000000000"),
        (1, "0000000000000001"),
        (-1, "ffffffffffffffff"),
        (-(2**63), "8000000000000000"),
    ],
)
def test_a_long_is_written_as_javas_serializer_does(number: Any, data: Any) -> None:
    assert Long().encode(number).hex() == data
    assert Long().decode(bytes.fromhex(data)) == number


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (2**63, "65 bits, more than 64"),
        (-(2**63) - 1, "65 bits"),
        pytest.param(10**5000, "16611 bits", id="5000 digits"),
        (1.5, r"must be an int, not float\. For other numbers choose another codec"),
        (
            Decimal("1.5"),
            r"not Decimal\..* for Decimals Typed\(Decimal\) or Avro with the logicalType decimal",
        ),
        ("1", "not str"),
        (True, "not bool"),
        (None, "not NoneType"),
    ],
)
def test_a_long_refuses_what_is_no_number_of_64_bits(value: Any, reason: str) -> None:
    with pytest.raises(SerializationError, match=reason):
        Long().encode(value)


@pytest.mark.parametrize("data", [b"", b"\x00" * 7, b"\x00" * 9])
def test_a_long_of_other_than_8_bytes_is_poison(data: Any) -> None:
    with pytest.raises(DeserializationError, match="must be 8"):
        Long().decode(data)
    assert list(Long().decode_many([data]).poison) == [0]


@settings(deadline=None, database=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_longs_are_decoded_together_as_one_by_one(numbers: Any) -> None:
    assert list(Long().decode_many(list(map(Long().encode, numbers))).values) == numbers


def test_a_column_of_longs_has_poison_and_gaps_where_they_are() -> None:
    one, other = Long().encode(1), Long().encode(-2)
    decoded = Long().decode_many([one, None, other + b"\x00", one[:7], other])
    assert list(decoded.values) == [1, None, None, None, -2]
    assert list(decoded.poison) == [2, 3], "of 16 bytes together, but neither has 8"


@settings(deadline=None, database=None)
@given(json_values)
def test_json_comes_back_as_it_was(value: Any) -> None:
    assert Json().decode(Json().encode(value)) == value


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        {"a": [1, {"b": -math.inf}]},
        [None, (math.nan,)],
        2**64,
        {1: "x"},
        "\ud800",
        b"x",
        {1, 2},
    ],
)
def test_json_refuses_what_is_no_json(value: Any) -> None:
    with pytest.raises(SerializationError):
        Json().encode(value)


@pytest.mark.parametrize("value", [Decimal("1.5"), date(2026, 3, 1), {1}], ids=repr)
def test_json_names_the_codec_of_values_that_only_python_has_and_it_takes_them(value: Any) -> None:
    kind = type(value)
    with pytest.raises(
        SerializationError, match=rf"serializable: {kind.__name__}\. .* Typed\({kind.__name__}\)"
    ):
        Json().encode({"a": value})
    codec: Typed[Any] = Typed(kind)
    assert codec.decode(codec.encode(value)) == value


def test_json_nested_without_end_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(SerializationError):
        Json().encode(loop)


@pytest.mark.parametrize(
    "data",
    [b"", b"NaN", b"[1e400]", b'"\\ud800"', b"\xff", b"{", b"[" * 100_000, b"\xef\xbb\xbf1", b"01", b"1 2"],
)
def test_bad_json_is_poison(data: Any) -> None:
    with pytest.raises(DeserializationError):
        Json().decode(data)


def test_json_larger_than_the_limit_is_poison() -> None:
    with pytest.raises(DeserializationError, match="at most 10"):
        Json(max_bytes=10).decode(b'"0123456789"')
    assert list(Json(max_bytes=10).decode_many([b"1", b'"0123456789"']).poison) == [1]


def test_each_is_a_codec() -> None:
    codecs: list[Codec[str] | Codec[bytes] | Codec[int]] = [String(), Bytes(), Long()]
    assert [repr(codec) for codec in (*codecs, Json())] == ["String()", "Bytes()", "Long()", "Json()"]
