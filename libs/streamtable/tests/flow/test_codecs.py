"""The codecs of what flows keep: bytes that cannot be decoded are poison of their own index."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtable import Long, String
from streamtable.decoding import decode_each
from streamtable.errors import DeserializationError
from streamtable.flow.emission import PendingKey, PendingRow
from streamtable.flow.foreign_key import Parts, PartsCodec
from streamtable.flow.joins import Waiting, WaitingCodec
from streamtable.flow.keys import SessionKey, Windowed, WindowedKey
from streamtable.flow.sides import Sides, SidesCodec
from streamtable.flow.sliding import Around, AroundRows
from streamtable.ports import Codec

CODECS: list[tuple[Codec[Any], Any]] = [
    (PendingKey(String()), PendingKey(String()).decode(b"a" + bytes(8))),
    (PendingRow(Long()), (1,)),
    (AroundRows(Long()), Around(1, None)),
    (WaitingCodec(Long(), Long()), Waiting(0, False, 5, 1)),
    (WindowedKey(String(), 10), Windowed("a", 10, 20)),
    (SessionKey(String()), Windowed("a", 10, 20)),
    (SidesCodec(), Sides(b"left", None)),
    (PartsCodec(2), Parts(3, (b"", b"right"))),
]


@pytest.mark.parametrize(("codec", "value"), CODECS, ids=lambda each: type(each).__name__)
def test_bytes_that_cannot_be_decoded_are_poison_and_the_others_are_decoded(
    codec: Codec[Any], value: Any
) -> None:
    found = codec.decode_many([codec.encode(value), b"\xff", None, codec.encode(value)])
    assert list(found.values) == [value, None, None, value]
    assert list(found.poison) == [1]


@given(
    st.lists(
        st.builds(
            WaitingCodec(Long(), String()).encode,
            st.builds(Waiting, st.just(0), st.booleans(), st.integers(-9, 9), st.none() | st.integers(0, 9))
            | st.builds(Waiting, st.just(1), st.booleans(), st.integers(-9, 9), st.none() | st.text())
            | st.builds(Waiting, st.just(2), st.just(False), st.integers(0, 9), st.none()),
        )
        | st.binary(max_size=20)
        | st.none()
    )
)
def test_waiting_records_are_decoded_together_as_one_by_one(data: list[bytes | None]) -> None:
    codec = WaitingCodec(Long(), String())
    together, singly = codec.decode_many(data), decode_each(codec.decode, data)
    assert list(together.values) == list(singly.values)
    assert together.poison.keys() == singly.poison.keys()


@pytest.mark.parametrize(
    "data",
    [b"\2" + bytes(9), b"\3" + bytes(9), b"\x80" + bytes(8), b"\x80" + bytes(10)],
    ids=["a number's row with a value", "an unknown side", "too short", "behind a row without a value"],
)
def test_bytes_that_are_no_waiting_record_are_refused(data: bytes) -> None:
    codec = WaitingCodec(String(), String())
    with pytest.raises(DeserializationError, match="no record that waits"):
        codec.decode(data)
    assert list(codec.decode_many([data]).poison) == [0]


@pytest.mark.parametrize(
    "data", [b"\x80\0\0\0" * 2, SidesCodec().encode(Sides(b"a", b"b")) + b"c", b"\0\0\0\x05a"]
)
def test_rows_of_a_join_are_taken_to_their_last_byte_or_not_at_all(data: bytes) -> None:
    with pytest.raises(DeserializationError, match="a row of a join"):
        SidesCodec().decode(data)
