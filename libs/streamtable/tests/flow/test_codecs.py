"""The codecs of what flows keep: bytes that cannot be decoded are poison of their own index."""

from typing import Any

import pytest

from streamtable import Long, String
from streamtable.base.ports import Codec
from streamtable.errors import DeserializationError, Fatal
from streamtable.flow.folds.emission import PendingRow
from streamtable.flow.folds.sliding import Around, AroundRows
from streamtable.flow.joins.foreign_key import Parts, PartsCodec
from streamtable.flow.joins.rules import Waiting, WaitingCodec, next_row, place
from streamtable.flow.joins.waiting_records import WaitingRecords, record_of, records_of, rows_of
from streamtable.flow.sides import Sides, SidesCodec
from streamtable.flow.windows.keys import SessionKey, Windowed, WindowedKey
from streamtable.flow.windows.pending import PendingKey

CODECS: list[tuple[Codec[Any], Any]] = [
    (PendingKey(String()), PendingKey(String()).decode(b"a" + bytes(8))),
    (PendingRow(Long()), (1,)),
    (AroundRows(Long()), Around(1, None)),
    (WaitingCodec(Long(), Long()), Waiting(0, False, 5, 1)),
    (WaitingRecords(Long(), Long()), WaitingCodec(Long(), Long()).encode(Waiting(0, False, 5, 1))),
    (WindowedKey(String(), 10), Windowed("a", 10, 20)),
    (SessionKey(String()), Windowed("a", 10, 20)),
    (SidesCodec(), Sides(b"left", None)),
    (PartsCodec(2), Parts(3, (b"", b"right"))),
    (PartsCodec(2, least=1), Parts(3, (b"left", b"right"))),
]


@pytest.mark.parametrize(("codec", "value"), CODECS, ids=lambda each: type(each).__name__)
def test_bytes_that_cannot_be_decoded_are_poison_and_the_others_are_decoded(
    codec: Codec[Any], value: Any
) -> None:
    found = codec.decode_many([codec.encode(value), b"\xff", None, codec.encode(value)])
    assert list(found.values) == [value, None, None, value]
    assert list(found.poison) == [1]


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


def test_parts_that_an_earlier_version_has_not_written_are_none_and_no_others_may_be_missing() -> None:
    written = PartsCodec(1).encode(Parts(3, (b"left",)))
    assert PartsCodec(2, least=1).decode(written) == Parts(3, (b"left", None))
    for codec, data in ((PartsCodec(2), written), (PartsCodec(2, least=1), written[:8])):
        with pytest.raises(DeserializationError, match="a row of several parts ends"):
            codec.decode(data)


def test_waiting_records_that_stay_encoded_are_the_same_bytes_in_the_table() -> None:
    codec, encoded = WaitingCodec(String(), Long()), WaitingRecords(String(), Long())
    assert repr(codec) == repr(encoded)
    records = records_of(1, [5, 7], 3, [False, True], [4, -1], encoded.encoded(1, [10, 20]))
    keys, rows = rows_of(1, [b"a", b"b"], records)
    assert keys == [place(b"a", 1, 5, 3), place(b"b", 1, 7, 4)]
    assert list(map(codec.decode, rows)) == [Waiting(1, False, 4, 10), Waiting(1, True, -1, 20)]
    assert list(map(record_of, keys, rows)) == records
    assert list(encoded.values(1, records)) == [10, 20]
    assert encoded.next_number(codec.encode(next_row(7))) == 7
    assert encoded.next_row(7) == codec.encode(next_row(7))


def test_a_waiting_record_that_another_codec_has_written_ends_the_process() -> None:
    records = records_of(0, [5], 0, [False], [4], [b"a text"])
    with pytest.raises(Fatal, match="written with another codec"):
        WaitingRecords(Long(), Long()).values(0, records)


@pytest.mark.parametrize("codec", [SidesCodec(), AroundRows(String())], ids=lambda each: type(each).__name__)
@pytest.mark.parametrize(
    "data",
    [
        b"\x80\0\0\0" * 2,
        SidesCodec().encode(Sides(b"a", b"b")) + b"c",
        SidesCodec().encode(Sides(b"a", b"bc"))[:-1],
        b"\0\0\0\x05a",
    ],
)
def test_rows_of_several_parts_are_taken_to_their_last_byte_or_not_at_all(
    codec: Codec[Any], data: bytes
) -> None:
    with pytest.raises(DeserializationError, match="a row of several parts"):
        codec.decode(data)
