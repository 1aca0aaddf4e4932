"""Messages that were damaged: each is read as the reference reads it, or is poison, and nothing else happens."""

import json
import random
import tracemalloc
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from libs.streamtable_codecs.tests.messages import shop
from libs.streamtable_codecs.tests.stand_in import serving

from streamtable import Stream, String, Typed
from streamtable.errors import DeserializationError
from streamtable_codecs import Apicurio, Confluent, HttpRegistry, JsonSchema, Protobuf


class Line(msgspec.Struct):
    sku: str
    price: float


class Order(msgspec.Struct):
    id: str
    at: int
    lines: list[Line]
    counts: dict[str, int]
    note: str | None = None


ORDER = Order("a", 5, [Line("x", 1.5), Line("ä", -0.25)], {"k": 1}, "n")


@pytest.fixture(scope="module")
def registry() -> Iterator[HttpRegistry]:
    with serving() as server:
        registry = HttpRegistry(server.url, register="missing", attempts=1, unknown_seconds=1e9)
        yield registry
        registry.close()


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Return bytes with some of them changed, removed, doubled or added."""
    made = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(made) + 1)
        match chance.randrange(5):
            case 0:
                made[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del made[at : at + chance.randint(1, 8)]
            case 2:
                made[at:at] = made[at : at + chance.randint(1, 8)]
            case 3:
                made[at:at] = chance.randbytes(chance.randint(1, 4))
            case 4:
                made = made[:at]
    return bytes(made)


def as_json(body: bytes) -> Any:
    """The value by the standard library's parser and by hand, so that not only msgspec judges it."""
    found = json.loads(body.decode(errors="replace"))  # a field that is skipped may be any bytes
    assert type(found["id"]) is str
    assert type(found["at"]) is int
    assert type(found.get("note")) in {str, type(None)}
    assert {(type(name), type(count)) for name, count in found["counts"].items()} <= {(str, int)}
    assert {type(line["sku"]) for line in found["lines"]} <= {str}
    assert {type(line["price"]) for line in found["lines"]} <= {int, float}
    lines = [Line(line["sku"], float(line["price"])) for line in found["lines"]]
    return Order(found["id"], found["at"], lines, found["counts"], found.get("note"))


def as_message(body: bytes) -> Any:
    return shop("Order").FromString(body)


def check(codec: Any, good: bytes, head: int, reference: Any, number: int) -> None:
    chance = random.Random(7)
    read = 0
    for _ in range(number):
        data = mutated(good, chance)
        try:
            value = codec.decode(data)
        except DeserializationError:
            continue
        assert value == reference(data[head:])
        assert data[:head] == good[:head]
        read += 1
    assert read > number // 500, "some are only changed, not damaged"


def run(registry: HttpRegistry, number: int) -> None:
    message = shop("Order")(id="a", weight=1.5, counts={"k": 1}, lines=[{"sku": "x", "price": {"cents": 5}}])
    tracemalloc.start()
    try:
        for topic, codec, value, head, reference in (
            ("typed", Typed(Order), ORDER, 0, as_json),
            ("json", JsonSchema(Order, Confluent(registry)), ORDER, 5, as_json),
            ("plain", Protobuf(shop("Order")), message, 0, as_message),
            ("proto", Protobuf(shop("Order"), Confluent(registry)), message, 7, as_message),
            ("named", Protobuf(shop("Order"), Apicurio(registry)), message, 17, as_message),
        ):
            bound: Any = Stream(topic, String(), codec).value
            check(bound, bound.encode(value), head, reference, number // 5)
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()


def test_a_damaged_message_is_read_as_the_reference_does_or_is_poison(registry: HttpRegistry) -> None:
    run(registry, 2_000)


@pytest.mark.faults_long("100,000 damaged messages")
@pytest.mark.timeout(1200)
def test_a_hundred_thousand_damaged_messages(registry: HttpRegistry) -> None:
    run(registry, 100_000)
