"""Bytes as they are shown: never ambiguous, never an error."""

import json
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtable import Avro, Bytes, Group, Input, Json, Long, Output, Persist, Stream, String, Typed
from streamtable.base.deadletter import ORIGIN_TOPIC
from streamtable.errors import ConfigurationError
from streamtable.graph.visiting import VisitProgress
from streamtable_admin.decode import Decoder, decoder_for, guess, known_schemas, schemas_in
from streamtable_codecs import Confluent, TopicName

CLICK = {"type": "record", "name": "shop.Click", "fields": [{"name": "user", "type": "string"}]}
CLICK_2 = {**CLICK, "fields": [*CLICK["fields"], {"name": "n", "type": "long"}]}


def ignore(ctx: Any, event: Any) -> None: ...


GROUP = Group(
    "g",
    Input(Stream("in", Long(), Json()), ignore),
    Persist(Avro("long")),
    Output(Stream("out", Bytes(), String())),
)


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (None, "null"),
        (b"", '""'),
        (b"alice", '"alice"'),
        (b"order-42", '"order-42"'),
        ("größe".encode(), '"größe"'),
        (b'say "no"\n', r'"say \"no\"\n"'),
        (b"null", '"null"'),
        (bytes(8), "long 0"),
        (b"\xff" * 8, "long -1"),
        (b"\x00", "hex 00"),
        (b"\x1b[31mreds", "hex 1b5b33316d72656473"),
        (b"\xff\xfe", "hex fffe"),
        (
            b"\x00\x00\x00\x00\x07\x02x",
            "hex 00000000070278 (perhaps Confluent's framing, schema id 7; set SCHEMA_REGISTRY_URL to decode it)",
        ),
    ],
)
def test_without_a_schema_bytes_are_guessed_so_that_no_two_look_alike(data: bytes | None, shown: str) -> None:
    assert str(guess(data)) == shown


@settings(deadline=None, database=None)
@given(st.binary(max_size=40))
def test_any_bytes_are_shown_printable_and_as_json(data: bytes) -> None:
    decoder = decoder_for(known_schemas(), [GROUP])
    for topic in ("in", "out", "g-table", "other"):
        for shown in (decoder.key(topic, data), decoder.value(topic, data)):
            assert str(shown).isprintable()
            json.dumps(shown.document(), allow_nan=False)


@settings(deadline=None, database=None)
@given(st.binary(max_size=12), st.binary(max_size=12))
def test_different_bytes_are_shown_differently(one: bytes, other: bytes) -> None:
    assert one == other or str(guess(one)) != str(guess(other))


def test_primitives_in_single_object_encoding_need_no_schema() -> None:
    assert str(Decoder(known_schemas()).value("t", Avro("long").encode(42))) == "long 42"
    assert str(Decoder(known_schemas()).value("t", Avro("string").encode("x"))) == 'string "x"'
    assert str(Decoder(known_schemas()).value("t", Avro("bytes").encode(b"\1"))) == 'bytes "01"'
    assert str(Decoder(known_schemas()).value("t", Avro("double").encode(float("nan")))) == 'double "nan"'


def test_the_progress_of_a_visit_needs_no_schema() -> None:
    shown = Decoder(known_schemas()).value("g-visits", VisitProgress("run-1", "10", b"alice", 7).encode())
    assert shown.kind == "streamtable.VisitProgress"
    assert shown.value["cursor"] == b"alice".hex()


def test_schemas_of_a_folder_decode_what_was_written_with_any_version(tmp_path: Path) -> None:
    (tmp_path / "history").mkdir()
    (tmp_path / "click.avsc").write_text(json.dumps(CLICK_2))
    (tmp_path / "history" / "1.avsc").write_text(json.dumps(CLICK))
    decoder = Decoder({**known_schemas(), **schemas_in(tmp_path)[0]})
    old, new = Avro(CLICK).encode({"user": "a"}), Avro(CLICK_2).encode({"user": "a", "n": 1})
    assert str(decoder.value("t", old)) == 'shop.Click {"user": "a"}'
    assert str(decoder.value("t", new)) == 'shop.Click {"user": "a", "n": 1}'
    unknown = Decoder(known_schemas()).value("t", old)
    assert unknown.kind == "hex"
    assert "unknown schema" in unknown.problem
    cut = decoder.value("t", new[:-1])
    assert (cut.kind, cut.value) == ("hex", new[:-1].hex())
    assert cut.problem


def test_the_graphs_codecs_are_used_for_its_topics_and_their_dead_letters() -> None:
    decoder = decoder_for(known_schemas(), [GROUP])
    assert str(decoder.key("in", Long().encode(ord("a")))) == "long 97"
    assert str(decoder.value("in", b'{"a": 1}')) == 'json {"a": 1}'
    assert str(decoder.value("g-table", Avro("long").encode(3))) == "long 3"
    assert str(decoder.value("out", bytes(8)[:0])) == '""'
    headers = [(ORIGIN_TOPIC, b"in")]
    assert str(decoder.value("g-dead-letters", b"[1]", headers)) == "json [1]"
    bad = decoder.value("g-dead-letters", b"[1", headers)
    assert (bad.kind, bad.value) == ("hex", b"[1".hex())
    assert "Json" in bad.problem


def test_a_codec_that_needs_a_registry_that_is_away_shows_hex() -> None:
    class Away:
        subjects = TopicName()

        def schema(self, schema_id: int | str) -> Any:
            raise ConfigurationError("away")

        def id_of(self, subject: str, definition: Any) -> int:
            raise ConfigurationError("away")

    decoder = Decoder(values={"t": Avro("long", Confluent(Away()))})
    assert str(decoder.value("t", b"\0\0\0\0\1\2")).startswith("hex 000000000102 (away")


def test_whatever_a_codec_of_ones_own_raises_the_bytes_are_shown() -> None:
    class Own:
        def encode(self, value: str) -> bytes:
            return value.encode()

        def decode(self, data: bytes) -> str:
            return {b"known": "value"}[data]

    decoder = Decoder(values={"t": Own()})  # type: ignore[dict-item] # what of a codec is asked here
    assert str(decoder.value("t", b"known")) == 'own "value"'
    assert str(decoder.value("t", b"k")) == "hex 6b (KeyError: b'k')"


@dataclass(frozen=True)
class Placed:
    id: str
    at: date


def test_a_typed_value_is_shown_as_its_json_and_one_that_does_not_fit_with_the_place() -> None:
    decoder = Decoder(values={"t": Typed(Placed)})
    assert (
        str(decoder.value("t", b'{"id":"a","at":"2026-07-01"}')) == 'Placed {"id": "a", "at": "2026-07-01"}'
    )
    assert decoder.value("t", b'{"id":1}').problem == "Placed: $.id: expected str, got int"
