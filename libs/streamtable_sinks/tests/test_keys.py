"""Keys of rows: the columns and the ids that tell them apart."""

import json
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from streamtable import Avro, Codec, Json, Long, String, Typed
from streamtable.errors import ConfigurationError
from streamtable.flow import SessionKey, Windowed, WindowedKey
from streamtable_sinks import SinkSource
from streamtable_sinks.columns import refuse_partial_key
from streamtable_sinks.elasticsearch import _ids_of
from streamtable_sinks.postgres import Postgres

PAIR = Avro(
    {
        "type": "record",
        "name": "Pair",
        "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "long"}],
    }
)


class Shop(msgspec.Struct, frozen=True):
    name: str
    number: int


class Renamed(msgspec.Struct, frozen=True):
    name: str
    number: int


@dataclass(frozen=True)
class Hidden:
    name: str
    number: int = field(repr=False, default=0)


@pytest.mark.parametrize(
    ("codec", "names", "lacking"),
    [
        (PAIR, ("a",), r"\['b'\]"),
        (Typed(Shop), ("number",), r"\['name'\]"),
        (WindowedKey(String(), 1_000), ("key",), r"\['start_ms'\]"),
        (SessionKey(String()), ("key", "start_ms"), r"\['end_ms'\]"),
    ],
)
def test_key_columns_that_would_make_one_row_of_several_keys_are_refused(
    codec: Codec[Any], names: tuple[str, ...], lacking: str
) -> None:
    target = Postgres("postgresql://nowhere.invalid/db", "t", key=names)
    with pytest.raises(ConfigurationError, match=f"lack {lacking} of the keys"):
        target.open(SinkSource("s", "table", True, codec, PAIR))


@pytest.mark.parametrize(
    ("codec", "names"),
    [
        (PAIR, ("b", "a")),
        (PAIR, ("x", "y")),
        (WindowedKey(String(), 1_000), ("key", "start_ms")),
        (WindowedKey(String(), 1_000), ("key", "start_ms", "end_ms")),
        (WindowedKey(String(), 1_000), ("shop", "from", "to")),
        (WindowedKey(String(), 1_000), ("key", "from_ms", "to_ms")),
        (WindowedKey(String(), 1_000), ("shop", "start_ms", "end_ms")),
        (SessionKey(String()), ("key", "start_ms", "end_ms")),
        (String(), ("k",)),
        (Json(), ("k",)),
        (Long(), ("id",)),
    ],
)
def test_key_columns_that_tell_all_keys_apart_are_accepted(codec: Codec[Any], names: tuple[str, ...]) -> None:
    refuse_partial_key(codec, names)


def test_the_id_of_a_window_has_the_fields_of_its_key_and_not_its_repr() -> None:
    ids = [
        _ids_of(WindowedKey(Typed(kind), 1_000))(Windowed(kind("a", number), 0, 1_000))
        for kind in (Shop, Renamed, Hidden)
        for number in (1, 2)
    ]
    one, two = (json.dumps([{"name": "a", "number": number}, 0, 1_000]) for number in (1, 2))
    assert ids == [one, two] * 3
