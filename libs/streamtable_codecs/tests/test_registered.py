"""Records of confluent-kafka are shown by the schemas that they name, without the program that reads them."""

import json
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from libs.streamtable_codecs.tests.messages import messages, shop
from libs.streamtable_codecs.tests.stand_in import StandIn, serving

from console.decode import PageDecoder
from streamtable import Long
from streamtable.errors import ConfigurationError
from streamtable_admin.decode import Decoder, added_decoders, known_schemas
from streamtable_cli.decoding import decoder_of
from streamtable_codecs import HttpRegistry, Protobuf
from streamtable_codecs.registered import AWAY_SECONDS, UNKNOWN_MAX, RegisteredRecords, from_environment

AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "string"}, {"name": "blob", "type": "bytes"}],
}
SCHEMA = {"title": "Order", "type": "object", "properties": {"id": {"type": "string"}}}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    with serving() as server:
        monkeypatch.setenv("SCHEMA_REGISTRY_URL", server.url)
        yield server


def serializer(kind: str, client: SchemaRegistryClient, **more: Any) -> tuple[Any, Any, tuple[str, Any]]:
    """Return a serializer, a value for it, and how it is to be shown."""
    if kind == "avro":
        shown = {"id": "o-1", "blob": "00ff"}
        made = AvroSerializer(client, json.dumps(AVRO), conf=more or None)
        return made, {"id": "o-1", "blob": b"\x00\xff"}, ("shop.Order", shown)
    if kind == "json":
        made = JSONSerializer(json.dumps(SCHEMA), client, conf=more or None)
        return made, {"id": "o-1"}, ("json", {"id": "o-1"})
    message = shop("Order")(id="o-1")
    made = ProtobufSerializer(shop("Order"), client, conf={**more, "use.deprecated.format": False})
    return made, message, ("shop.Order", {"id": "o-1"})


@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("where", ["in front", "in a header"])
@pytest.mark.parametrize("kind", ["avro", "json", "protobuf"])
def test_the_console_and_the_command_line_show_what_confluent_kafka_has_written(
    server: StandIn, kind: str, where: str, part: str
) -> None:
    more = {"schema.id.serializer": header_schema_id_serializer} if where == "in a header" else {}
    with SchemaRegistryClient({"url": server.url}) as client:
        serialize, value, (name, shown) = serializer(kind, client, **more)
        headers: list[Any] = []
        data = serialize(value, SerializationContext("orders", MessageField(part), headers))
    assert bool(headers) == (where == "in a header")
    decoder = decoder_of()
    found = (decoder.key if part == "key" else decoder.value)("orders", data, headers)
    assert (found.kind, found.value, found.problem) == (name, shown, "")
    page = PageDecoder(known_schemas()).show(data, headers, "key" if part == "key" else "value")
    assert (page["type"], page["value"]) == (name.rpartition(".")[2], shown)


def test_other_bytes_are_shown_as_before(server: StandIn) -> None:
    decoder = decoder_of()
    assert decoder.value("t", b"alice").kind == "text"
    assert server.requests == []
    for number in (42, 1_790_000_000_000):
        assert decoder.value("t", number.to_bytes(8, "big")).value == number


def test_a_schema_that_the_registry_does_not_know_is_named(server: StandIn) -> None:
    found = decoder_of().value("t", b"\x00\x00\x00\x00\x07body")
    assert (found.kind, found.value) == ("hex", "0000000007626f6479")
    assert "schema id 7: the registry does not know it" in found.problem
    assert len(server.requests) == 1


def test_a_registry_that_does_not_answer_is_asked_again_after_a_while(server: StandIn) -> None:
    now = [0.0]
    registry = HttpRegistry(server.url, attempts=1)
    decoder = Decoder(added=(RegisteredRecords(registry, lambda: now[0]),))
    server.away = True
    data = b"\x00\x00\x00\x00\x01body"
    problems = [decoder.value("t", data).problem for _ in range(3)]
    assert len(server.requests) == 1
    assert all(problems)
    now[0] = AWAY_SECONDS
    assert decoder.value("t", data).problem
    assert len(server.requests) == 2
    registry.close()


def test_a_source_of_protobuf_without_a_descriptor_says_what_shows_it(server: StandIn) -> None:
    server.schemas.append({"schemaType": "PROTOBUF", "schema": 'syntax = "proto3"; message A {}'})
    found = decoder_of().value("t", b"\x00\x00\x00\x00\x01\x00")
    assert found.kind == "hex"
    assert "--graph" in found.problem


def test_settings_that_contradict_each_other_are_refused() -> None:
    both = {
        "SCHEMA_REGISTRY_URL": "http://r",
        "SCHEMA_REGISTRY_USER": "u",
        "SCHEMA_REGISTRY_TOKEN": "t",
    }
    with pytest.raises(ConfigurationError, match="give one of them"):
        from_environment(both)


@pytest.mark.parametrize(
    "name", ["SCHEMA_REGISTRY_PASWORD", "SCHEMA_REGISTRY_ULR", "SCHEMA_REGISTRY_TOKEN_PATH"]
)
def test_an_unknown_variable_is_refused_with_the_known_ones(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "secret")
    with pytest.raises(
        ConfigurationError, match=f"^{name}: there is no such setting.*SCHEMA_REGISTRY_PASSWORD_FILE"
    ) as refused:
        added_decoders()
    assert "secret" not in str(refused.value)


def test_the_variables_that_kubernetes_sets_for_a_service_of_that_name_are_no_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_8081_TCP_ADDR"):
        monkeypatch.setenv(f"SCHEMA_REGISTRY_{name}", "10.0.0.1")
    assert added_decoders() == []


@pytest.mark.parametrize("login", [{"USER": "me", "PASSWORD_FILE": ""}, {"TOKEN_FILE": ""}])
def test_a_secret_may_be_in_a_file(server: StandIn, tmp_path: Path, login: dict[str, str]) -> None:
    file = tmp_path / "secret"
    file.write_text("hunter2\n")
    server.schemas.append({"schema": json.dumps(AVRO)})
    named = {f"SCHEMA_REGISTRY_{name}": value or str(file) for name, value in login.items()}
    decoder = from_environment({"SCHEMA_REGISTRY_URL": server.url, **named})
    assert decoder is not None
    decoder(b"\x00\x00\x00\x00\x01\x02a\x00", [], "value")
    expected = "Bearer hunter2" if "TOKEN_FILE" in login else f"Basic {b64encode(b'me:hunter2').decode()}"
    assert server.headers[-1] == expected


def test_a_file_that_has_no_secret_or_stands_beside_the_secret_is_refused(tmp_path: Path) -> None:
    named = {"SCHEMA_REGISTRY_URL": "http://r", "SCHEMA_REGISTRY_TOKEN_FILE": str(tmp_path / "none")}
    with pytest.raises(
        ConfigurationError, match=r"SCHEMA_REGISTRY_TOKEN_FILE: .*none cannot be read: No such file"
    ):
        from_environment(named)
    with pytest.raises(ConfigurationError, match="TOKEN and SCHEMA_REGISTRY_TOKEN_FILE: give one of them"):
        from_environment({**named, "SCHEMA_REGISTRY_TOKEN": "t"})


def test_nothing_is_added_without_a_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    assert added_decoders() == []
    monkeypatch.setenv("SCHEMA_REGISTRY_URL", "")
    assert added_decoders() == []


def test_messages_with_googles_well_known_types_are_shown_in_a_process_that_has_not_loaded_them(
    server: StandIn,
) -> None:
    visit = messages(
        visit='syntax = "proto3"; package a; import "google/protobuf/timestamp.proto";'
        " message Visit { google.protobuf.Timestamp at = 1; }"
    )("a.Visit")
    definition = Protobuf(visit).definition
    server.schemas.append({"schema": definition.text, "schemaType": "PROTOBUF"})
    code = """
from streamtable_cli.decoding import decoder_of
print(decoder_of().value("visits", bytes.fromhex("0000000001000a020805")))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == 'a.Visit {"at": "1970-01-01T00:00:05Z"}\n'


def test_an_imported_file_that_the_registry_does_not_have_is_named(server: StandIn) -> None:
    server.schemas.append({"schema": Protobuf(shop("Order")).definition.text, "schemaType": "PROTOBUF"})
    found = decoder_of().value("orders", b"\x00\x00\x00\x00\x01\x02\x02\x0a\x01a")
    assert found.kind == "hex"
    assert "do not fit each other" in found.problem
    assert "money.proto" in found.problem


def test_numbers_stay_numbers_while_the_registry_is_away_and_cost_few_requests(server: StandIn) -> None:
    decoder = decoder_of()
    for number in range(2, 100):
        assert str(decoder.key("t", Long().encode(number << 32))) == f"long {number << 32}"
    assert len(server.requests) == UNKNOWN_MAX
    server.away = True
    assert str(decoder_of().key("t", Long().encode(5))) == "long 5"


@pytest.mark.parametrize("header", [b"\x07\x00\x00\x00\x01", b"\x00\x01", b"\x01\x02"])
def test_a_header_in_another_format_is_a_problem_and_no_id(server: StandIn, header: bytes) -> None:
    server.schemas.append({"schema": json.dumps(SCHEMA), "schemaType": "JSON"})
    found = decoder_of().value("t", b"{}", [("__value_schema_id", header)])
    assert found.problem == f"__value_schema_id: not Confluent's format: {header.hex()}"
    assert server.requests == []
