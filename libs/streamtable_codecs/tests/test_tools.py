"""The command line on records of typed JSON, JSON Schema and Protobuf: what it shows, and dead letters that it replays."""

import sys
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from libs.streamtable_cli.tests.bench import Cli
from tests.system.bench import Bench

from localkafka.broker import Broker
from localkafka.fixtures import Topics

GUID = UUID("9ff70b46-9a26-4a0a-9a3f-0d2f6e7d8c11")
PROGRAM = """
import json
from pathlib import Path
import msgspec
from contracts.grpc.tweet_reach.v1.tweet_reach_pb2 import GetResponse
from streamtable import Group, Input, Join, Persist, Stream, String, Table, Typed
from streamtable_codecs import Confluent, FileRegistry, JsonSchema, Protobuf

class Order(msgspec.Struct):
    id: str
    cents: int = 0

SCHEMA = {"schemaType": "JSON", "schema": JsonSchema(Order).definition.text}
Path("schemas.json").write_text(json.dumps({"schemas": {"7": SCHEMA, "GUID": SCHEMA}, "subjects": {}}))
REGISTRY = FileRegistry(Path("schemas.json"))
TYPED = Stream("PREFIX-typed", String(), Typed(Order))
SCHEMAS = Stream("PREFIX-schemas", String(), JsonSchema(Order, Confluent(REGISTRY)))
SENT = Stream("PREFIX-sent", String(), Protobuf(GetResponse))
USERS = Table("PREFIX-users", String(), JsonSchema(Order, Confluent(REGISTRY)))

def keep(ctx, event):
    ctx.set(Order(ctx.key, getattr(event, "cents", 0) or getattr(event, "offset", 0)))

GROUP = Group("PREFIX-g", Input(TYPED, keep), Input(SCHEMAS, keep), Input(SENT, keep), Persist(Typed(Order)), Join(USERS))
"""


@pytest.fixture
def bench(broker: Broker, topics: Topics, tmp_path: Path) -> Iterator[Bench]:
    with closing(Bench(broker.bootstrap_servers, topics, tmp_path)) as bench:
        yield bench


@pytest.fixture
def shop(topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    text = PROGRAM.replace("PREFIX", topics.name("x")).replace("GUID", str(GUID))
    Path("tools_shop.py").write_text(text)
    yield import_module("tools_shop")
    del sys.modules["tools_shop"]


@pytest.mark.broker
def test_records_rows_and_dead_letters_are_shown_as_their_codecs_read_them_and_are_replayed(
    broker: Broker, shop: Any, bench: Bench
) -> None:
    bench.create(shop.GROUP)
    order, in_header = b'{"id":"a","cents":5}', [("__value_schema_id", b"\x01" + GUID.bytes)]
    bench.send(shop.TYPED.name, (b"t", order), (b"bad", b'{"id":5}'))
    bench.send(
        shop.SCHEMAS.name,
        (b"f", b"\x00\x00\x00\x00\x07" + order),
        (b"h", order, in_header),
        (b"bad", b'{"id":5}', in_header),
    )
    bench.send(shop.SENT.name, (b"p", shop.GetResponse(offset=5).SerializeToString()), (b"bad", b"\xff"))
    bench.work_off(shop.GROUP)

    cli = Cli(broker.bootstrap_servers, "--timeout", "20")
    graph = ("--graph", "tools_shop:GROUP", "--json")

    def tail(topic: str) -> list[dict[str, object]]:
        return [line["value"] for line in cli("topics", "tail", topic, *graph).good().lines]

    good = {"type": "Order", "value": {"id": "a", "cents": 5}}
    bad = "Order: $.id: expected str, got int"
    assert [each.get("problem", each) for each in tail(shop.TYPED.name)] == [
        good,
        bad,
    ]
    assert [each.get("problem", each) for each in tail(shop.SCHEMAS.name)] == [
        good,
        good,
        bad,
    ]
    sent = tail(shop.SENT.name)
    assert (sent[0]["type"], sent[0]["value"]) == ("GetResponse", {"offset": "5"})
    assert str(sent[1]["problem"]).startswith("GetResponse: not such a message")
    for key in "tfhp":
        row = cli("table", "get", shop.GROUP.table.name, key, *graph).good().json
        assert row["value"] == {"type": "Order", "value": {"id": key, "cents": 5}}

    letters = cli("topics", "tail", shop.GROUP.dead_letters, *graph).good().lines
    assert sorted(line["value"]["problem"][:34] for line in letters) == [
        "GetResponse: not such a message: E",
        bad,
        bad,
    ]
    before = sorted(found.value or b"" for found in bench.letters(shop.GROUP))
    cli("dead-letters", "replay", shop.GROUP.name, "--all").good()
    bench.work_off(shop.GROUP)
    after = sorted(found.value for found in bench.letters(shop.GROUP) if found.value is not None)
    assert after == sorted([*before, *before]), (
        "they are as they were, so they come back, and as the same bytes"
    )
    assert b"\x01" + GUID.bytes + b'{"id":5}' in before


@pytest.mark.broker
def test_rows_of_a_joined_table_whose_ids_are_in_headers_are_shown_and_found_to_be_readable(
    broker: Broker, shop: Any, bench: Bench
) -> None:
    bench.create(shop.GROUP)
    order, in_header = b'{"id":"a","cents":5}', [("__value_schema_id", b"\x01" + GUID.bytes)]
    bench.send(shop.USERS.name, (b"f", b"\x00\x00\x00\x00\x07" + order), (b"h", order, in_header))
    cli = Cli(broker.bootstrap_servers, "--timeout", "20")
    graph = ("--graph", "tools_shop:GROUP")

    def found() -> list[str]:
        answer = cli("doctor", *graph, "--over", "0", "--json").json
        return [each["fact"] for each in answer if each["subject"] == f"rows of {shop.USERS.name}"]

    assert found() == ["the whole topic (2 records) can be decoded"]
    rows = cli("table", "scan", shop.USERS.name, *graph, "--json").good().lines
    assert [row["value"] for row in rows] == [{"type": "Order", "value": {"id": "a", "cents": 5}}] * 2
    row = cli("table", "get", shop.USERS.name, "h", *graph).good().out
    assert row == '"h": Order {"id": "a", "cents": 5}\n'
    bench.send(shop.USERS.name, (b"bad", b'{"id":5}', in_header))
    assert found()[0].startswith(f"1 row cannot be decoded: {shop.USERS.name}[0]@2")
