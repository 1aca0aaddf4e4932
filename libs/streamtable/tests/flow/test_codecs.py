"""The codecs of what flows keep: bytes that cannot be decoded are poison of their own index."""

from typing import Any

import pytest

from streamtable import Long, String
from streamtable.flow.emission import PendingKey, PendingRow
from streamtable.flow.joins import Waiting, WaitingCodec
from streamtable.flow.keys import SessionKey, Windowed, WindowedKey
from streamtable.flow.sliding import Around, AroundRows
from streamtable.ports import Codec

CODECS: list[tuple[Codec[Any], Any]] = [
    (PendingKey(String()), PendingKey(String()).decode(b"a" + bytes(8))),
    (PendingRow(Long()), (1,)),
    (AroundRows(Long()), Around(1, None)),
    (WaitingCodec(Long(), Long()), Waiting(0, False, 5, 1)),
    (WindowedKey(String(), 10), Windowed("a", 10, 20)),
    (SessionKey(String()), Windowed("a", 10, 20)),
]


@pytest.mark.parametrize(("codec", "value"), CODECS, ids=lambda each: type(each).__name__)
def test_bytes_that_cannot_be_decoded_are_poison_and_the_others_are_decoded(
    codec: Codec[Any], value: Any
) -> None:
    found = codec.decode_many([codec.encode(value), b"\xff", None, codec.encode(value)])
    assert list(found.values) == [value, None, None, value]
    assert list(found.poison) == [1]
