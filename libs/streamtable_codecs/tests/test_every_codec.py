"""Each public codec, plain and behind the id of a registry, in the places where a program and its operators meet it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pytest
from libs.streamtable_codecs.tests.messages import shop
from libs.streamtable_codecs.tests.stand_in import StandIn, serving
from pydantic import BaseModel

from console.decode import PageDecoder
from streamtable import (
    Avro,
    Codec,
    Context,
    Group,
    Input,
    Json,
    Long,
    OnError,
    Output,
    Persist,
    Plain,
    State,
    Stream,
    String,
    Typed,
)
from streamtable_admin.decode import decoder_for, known_schemas
from streamtable_codecs import Apicurio, Confluent, HttpRegistry, JsonSchema, Protobuf
from streamtable_testing import Tester


class Struct(msgspec.Struct):
    id: str


@dataclass
class Data:
    id: str


class Named(TypedDict):
    id: str


class Model(BaseModel):
    id: str


AVRO = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
SCHEMA = {"type": "object", "title": "Order", "properties": {"id": {"type": "string"}}, "required": ["id"]}
BAD = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"
"""Bytes that no codec reads."""


def as_dict(text: str) -> Any:
    return {"id": text}


def as_message(text: str) -> Any:
    return shop("Head")(a=text)


def as_model(text: str) -> Model:
    return Model(id=text)


CODECS: dict[str, tuple[Callable[[Any], Codec[Any]], Callable[[str], Any]]] = {
    "json": (lambda _: Json(), as_dict),
    "typed_struct": (lambda _: Typed(Struct), Struct),
    "typed_dataclass": (lambda _: Typed(Data), Data),
    "typed_dict": (lambda _: Typed(Named), as_dict),
    "typed_model": (lambda _: Typed(Model), as_model),
    "avro": (lambda framing: Avro(AVRO, framing), as_dict),
    "protobuf": (lambda framing: Protobuf(shop("Head"), framing), as_message),
    "json_schema": (lambda framing: JsonSchema(Struct, framing), Struct),
    "json_schema_of_model": (lambda framing: JsonSchema(Model, framing), as_model),
    "json_schema_of_dict": (lambda framing: JsonSchema(SCHEMA, framing), as_dict),
}
"""By name a function that makes a codec with a framing, and one that makes its values."""
FRAMINGS: dict[str, Any] = {
    "": lambda *_: None,
    "plain": lambda *_: Plain(),
    "confluent": Confluent,
    "apicurio": Apicurio,
}
NAMES = [
    (codec, framing)
    for codec in CODECS
    for framing in FRAMINGS
    if not framing
    or (codec == "avro" if framing == "plain" else codec.startswith(("avro", "protobuf", "json_schema")))
]
"""Of the codecs only Avro is not plain by default; `Json` and `Typed` have no framing."""
REGISTRIES = ("confluent", "apicurio")
SHOWN: dict[tuple[str, str], tuple[str, Any]] = {
    ("avro", ""): ("Order", {"id": "a"}),
    ("avro", "plain"): ("hex", "0261"),
    ("protobuf", ""): ("hex", "0a0161"),
    **{("avro", each): ("Order", {"id": "a"}) for each in REGISTRIES},
    **{("protobuf", each): ("Head", {"a": "a"}) for each in REGISTRIES},
}
"""The type and value on the console of a record whose program it does not know; of all other codecs JSON, or its text."""
every_codec = pytest.mark.parametrize(("name", "framing"), NAMES)


class World:
    """A group whose events, rows, state and output have one codec. Its handler refuses records while `broken`."""

    def __init__(self, codec: Codec[Any], of_state: Codec[Any], made: Callable[[str], Any]) -> None:
        self.broken = False
        self.made = made
        self.orders = Stream("orders", String(), codec)
        self.out = Stream("out", String(), codec)
        self.state = State("kept", key=Long(), value=of_state)

        def keep(ctx: Context[str, Any], event: Any) -> None:
            if self.broken:
                ctx.fail("broken")
            ctx.set(event)
            ctx.table(self.state).put(1, event)
            ctx.emit(self.out, ctx.key, event)

        self.group = Group[str, Any](
            "g",
            Input(self.orders, keep, on_error=OnError.DEAD_LETTER),
            Output(self.out),
            Persist(codec),
            self.state,
        )


@pytest.fixture
def server() -> Iterator[StandIn]:
    with serving() as server:
        yield server


@pytest.fixture
def world(server: StandIn, name: str, framing: str) -> Iterator[World]:
    registry = HttpRegistry(server.url, register="missing", wait=lambda _: None)
    codec, made = CODECS[name]
    framed = FRAMINGS[framing]
    yield World(codec(framed(registry)), codec(framed(registry, "kept")), made)
    registry.close()


@pytest.fixture
def tester() -> Iterator[Tester]:
    with Tester() as tester:
        yield tester


@every_codec
def test_events_become_rows_and_output_that_are_there_after_the_disk_is_lost(
    tester: Tester, world: World
) -> None:
    a, b = world.made("a"), world.made("b")
    tester.run(world.group)
    tester.emit(world.orders, "x", a)
    tester.stop(world.group)
    tester.start(world.group, disk=False)
    assert tester.table(world.group) == {"x": a}
    tester.emit_many(world.orders, [("y", a), ("x", b)])
    assert tester.table(world.group) == {"x": b, "y": a}
    assert tester.table(world.group, world.state) == {1: b}
    assert [each.value for each in tester.records(world.out)] == [a, a, b]


@every_codec
def test_a_view_shows_rows_and_follows_them(tester: Tester, world: World) -> None:
    tester.run(world.group)
    tester.emit(world.orders, "x", world.made("a"))
    view = tester.view(world.group.table)
    state = tester.view(world.group.state_table(world.state))
    assert dict(view.iterate()) == {"x": world.made("a")}
    tester.emit(world.orders, "x", world.made("b"))
    assert view.get("x") == state.get(1) == world.made("b")


@every_codec
def test_bytes_that_are_no_such_value_are_a_dead_letter_and_the_rest_is_handled(
    tester: Tester, world: World
) -> None:
    tester.run(world.group)
    tester.emit_raw("orders", b"bad", BAD)
    tester.emit(world.orders, "x", world.made("a"))
    (letter,) = tester.dead_letters(world.group)
    assert (letter.key, letter.value, letter.error) == (b"bad", BAD, "DeserializationError")
    assert tester.table(world.group) == {"x": world.made("a")}


@every_codec
def test_a_dead_letter_that_is_replayed_is_the_event_again(tester: Tester, world: World) -> None:
    tester.run(world.group)
    world.broken = True
    tester.emit(world.orders, "x", world.made("a"))
    assert tester.table(world.group) == {}
    world.broken = False
    (letter,) = tester.dead_letters(world.group)
    tester.retry(world.group, letter)
    assert tester.table(world.group) == {"x": world.made("a")}


@every_codec
def test_the_command_line_shows_records_rows_and_dead_letters_by_the_graph(
    tester: Tester, world: World
) -> None:
    tester.run(world.group)
    tester.emit(world.orders, "x", world.made("a"))
    world.broken = True
    tester.emit(world.orders, "x", world.made("a"))
    decoder = decoder_for(known_schemas(), [world.group])
    for topic in ("orders", "out", "g-table", "g-kept", "g-dead-letters"):
        _, record = tester.kafka.records(topic)[0]
        shown = decoder.value(topic, record.value(), record.headers() or ())
        assert list(shown.value.values()) == ["a"], (topic, shown)
        assert shown.problem == ""


@every_codec
def test_the_console_shows_what_records_say_themselves_without_the_graph(
    tester: Tester, world: World, name: str, framing: str, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEMA_REGISTRY_URL", server.url)
    tester.run(world.group)
    tester.emit(world.orders, "x", world.made("a"))
    _, record = tester.kafka.records("orders")[0]
    shown = PageDecoder(known_schemas([AVRO])).show(record.value(), record.headers() or ())
    kind, value = SHOWN.get((name, framing), ("json" if framing in REGISTRIES else "text", None))
    assert shown == {"type": kind, "value": value or ({"id": "a"} if kind == "json" else '{"id":"a"}')}
