import json
from typing import Any

import pytest

from console.decode import CHARACTERS_MAX, PageDecoder, released_schemas
from contracts import records
from contracts.records import USER_CLICK
from contracts.schema import RecordSchema
from streamtable import Avro
from streamtable.graph.visiting import VisitProgress


@pytest.fixture(scope="module")
def decoder() -> PageDecoder:
    return PageDecoder(released_schemas(records))


def test_a_record_is_decoded_by_the_schema_that_its_bytes_name(decoder: PageDecoder) -> None:
    click = {"id": "1", "user_id": "alice", "url": "u", "at": 3}
    shown = decoder.show(Avro(USER_CLICK).encode(click))  # type: ignore[arg-type] # a plain dict will do
    assert shown["type"] == "UserClick"
    assert shown["value"]["user_id"] == "alice"


def test_every_released_version_of_a_schema_is_known(decoder: PageDecoder) -> None:
    known = [found for found in vars(records).values() if isinstance(found, RecordSchema)]
    assert known
    for text in [text for found in known for text in found.history]:
        assert Avro(json.loads(text)).schema.fingerprint in released_schemas(records)


def test_the_progress_of_a_visit_is_decoded(decoder: PageDecoder) -> None:
    shown = decoder.show(VisitProgress("run-1", "10", b"alice", 7).encode())
    expected = {"run": "run-1", "argument": "10", "cursor": b"alice".hex(), "visited": 7, "done": False}
    assert (shown["type"], shown["value"]) == ("VisitProgress", expected)


@pytest.mark.parametrize(
    ("data", "type_", "value"),
    [
        (None, "null", None),
        (b"", "text", ""),
        ("häuser\n".encode(), "text", "häuser\n"),
        ((7).to_bytes(8, "big"), "long", 7),
        (b"\xff\x00", "hex", "ff00"),
        (b"<b>bold</b>", "text", "<b>bold</b>"),
        (b"a\x00b", "hex", "610062"),
    ],
)
def test_other_bytes_are_shown_as_what_they_look_like(
    decoder: PageDecoder, data: bytes | None, type_: str, value: Any
) -> None:
    shown = decoder.show(data)
    assert (shown["type"], shown["value"]) == (type_, value)


def test_an_unknown_schema_is_named(decoder: PageDecoder) -> None:
    shown = decoder.show(b"\xc3\x01" + bytes(range(8)) + b"rest")
    assert shown["type"] == "hex"
    assert shown["problem"] == "Avro with an unknown schema, fingerprint 0706050403020100"


def test_bytes_that_do_not_fit_their_schema_are_shown_with_the_reason(decoder: PageDecoder) -> None:
    shown = decoder.show(Avro("long").encode(5) + b"more")
    assert shown["type"] == "hex"
    assert shown["problem"]


@pytest.mark.parametrize("number", [2**53, -(2**63)])
def test_a_number_that_a_browser_would_round_becomes_text(decoder: PageDecoder, number: int) -> None:
    assert decoder.show(Avro("long").encode(number))["value"] == str(number)


def test_what_json_cannot_express_becomes_text(decoder: PageDecoder) -> None:
    shown = decoder.show(Avro("double").encode(float("nan")))
    assert shown["value"] == "nan"
    json.dumps(shown, allow_nan=False)


@pytest.mark.parametrize("beginning", [b"", b"x"])  # so that the cut falls between and into characters
def test_of_a_large_value_the_whole_characters_of_its_beginning_are_shown(
    decoder: PageDecoder, beginning: bytes
) -> None:
    shown = decoder.show(beginning + "é".encode() * 500_000)
    assert shown["type"] == "text"
    assert shown["value"] == (beginning.decode() + "é" * CHARACTERS_MAX)[:CHARACTERS_MAX]
    assert shown["cut"] == 1_000_000 + len(beginning)


def test_a_large_value_with_a_schema_is_not_decoded_and_says_so(decoder: PageDecoder) -> None:
    shown = decoder.show(b"\xc3\x01" + bytes(100_000))
    assert shown["type"] == "hex"
    assert shown["problem"] == "not decoded: larger than 65536 bytes"


def test_a_long_value_is_cut_and_says_how_long_it_was(decoder: PageDecoder) -> None:
    shown = decoder.show(b"x" * 10_000)
    assert len(shown["value"]) == CHARACTERS_MAX
    assert shown["cut"] == 10_000
