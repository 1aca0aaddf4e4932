"""Random schemas, values and damaged bytes through every codec, in a process of its own with little memory.

    python -m tests.hostile.codec_fuzz --seed 1 --seconds 10      # prints how many rounds went well
    python -m tests.hostile.codec_fuzz --seed 1 --round 4711      # one round again

Only `DeserializationError` may come out of a decoder. What it accepts, it writes again as bytes that it reads as the same
value. It accepts what a plain reading of the specification does (`Strict`), no more and no less; and fastavro, which
checks less, reads the same value from that. Of many messages at once it makes what it makes of each.
"""

import argparse
import json
import math
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from datetime import time as day_time
from decimal import Decimal
from io import BytesIO
from random import Random
from struct import unpack
from typing import Any, NamedTuple
from uuid import UUID

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from streamtable.base.ports import Codec
from streamtable.codec import Avro, Bytes, Framing, Json, Long, Plain, SingleObject, String
from streamtable.errors import ConfigurationError, DeserializationError
from streamtable_codecs import Confluent, TopicName
from streamtable_codecs.schemas import Definition, Registered

MEMORY_BYTES = 1_000_000_000
DAMAGES = 25  # of each value's bytes
PLAIN_SHARE = 0.1  # of the rounds are for codecs without a schema,
BATCH_SHARE = 0.3  # and from there on for many messages at once
OPTIONAL_SHARE = 0.4  # of the fields there
GOOD_SHARE = 0.6  # of the messages there
LONGEST_MESSAGE = 2_000
CODECS: list[Callable[[], Codec[Any]]] = [String, Bytes, Long, Json]
INTERESTING = [0, 1, 2, 3, 0x7F, 0x80, 0xC0, 0xED, 0xFE, 0xFF]
NUMBERS = [0, -1, 1, 63, 64, -65, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63)]
LOGICAL: dict[str, dict[str, Any]] = {
    "date": {"type": "int", "logicalType": "date"},
    "time": {"type": "int", "logicalType": "time-millis"},
    "micros": {"type": "long", "logicalType": "time-micros"},
    "timestamp": {"type": "long", "logicalType": "timestamp-millis"},
    "precise": {"type": "long", "logicalType": "timestamp-micros"},
    "local": {"type": "long", "logicalType": "local-timestamp-micros"},
    "uuid": {"type": "string", "logicalType": "uuid"},
    "money": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
}
TEXTS = ["", "a", "é", "\x00", "\U0001f600", "x" * 70, "null"]


# ---- schemas and values --------------------------------------------------------------------------------------------


def schema(rng: Random, depth: int = 3, name: str = "T") -> Any:  # noqa: PLR0911 - one answer for each type
    """Return a random schema of any type; the branches of a union are distinguishable."""
    kinds = ["boolean", "int", "long", "float", "double", "bytes", "string", *LOGICAL]
    kind = rng.choice(kinds + ["enum", "fixed", "record", "array", "map", "union"] * (3 if depth else 0))
    if kind in LOGICAL:
        return dict(LOGICAL[kind])
    if kind == "enum":
        return {"type": "enum", "name": name, "symbols": [f"S{i}" for i in range(rng.choice([1, 3, 70]))]}
    if kind == "fixed":
        return {"type": "fixed", "name": name, "size": rng.randint(1, 5)}
    if kind == "array":
        return {"type": "array", "items": schema(rng, depth - 1, name + "a")}
    if kind == "map":
        return {"type": "map", "values": schema(rng, depth - 1, name + "m")}
    if kind == "union":
        branches = ["null", "boolean", "long", "string", "bytes"]
        return rng.sample(branches, rng.randint(1, 5))
    if kind == "record":
        fields = [
            {"name": f"f{i}", "type": schema(rng, depth - 1, f"{name}f{i}")} for i in range(rng.randint(1, 5))
        ]
        return {"type": "record", "name": name, "fields": fields}
    return kind


def value(rng: Random, node: Any) -> Any:  # noqa: PLR0911 - one answer for each type
    if isinstance(node, list):
        return value(rng, rng.choice(node))
    kind = node if isinstance(node, str) else node["type"]
    if isinstance(node, dict) and "logicalType" in node:
        return _logical_value(rng, node["logicalType"])
    if kind == "enum":
        return rng.choice(node["symbols"])
    if kind == "fixed":
        return rng.randbytes(node["size"])
    if kind == "array":
        return [value(rng, node["items"]) for _ in range(rng.choice([0, 1, 2, 5]))]
    if kind == "map":
        return {text: value(rng, node["values"]) for text in rng.sample(TEXTS, rng.randint(0, 4))}
    if kind == "record":
        return {field["name"]: value(rng, field["type"]) for field in node["fields"]}
    if kind in {"int", "long"}:
        bits = 31 if kind == "int" else 63
        fitting = [number for number in NUMBERS if -(2**bits) <= number < 2**bits]
        return rng.choice([*fitting, rng.randrange(-(2**bits), 2**bits)])
    simple: dict[str, Any] = {
        "null": None,
        "boolean": rng.random() < 0.5,
        "float": rng.choice([0.0, -0.0, 0.5, math.inf, -math.inf, math.nan]),
        "double": rng.choice([0.0, -0.0, 1e308, 5e-324, math.inf, math.nan, rng.random()]),
        "bytes": rng.randbytes(rng.choice([0, 1, 70])),
        "string": rng.choice(TEXTS),
    }
    return simple[kind]


def _logical_value(rng: Random, kind: str) -> Any:
    micros = rng.randrange(86_400_000_000)
    moment = datetime(rng.randint(1, 9999), rng.randint(1, 12), 5, 3, 4, 5, tzinfo=UTC)
    at = day_time(micros // 3_600_000_000, micros // 60_000_000 % 60, micros // 1_000_000 % 60)
    made: dict[str, Any] = {
        "date": date(moment.year, moment.month, 5),
        "time-millis": at.replace(microsecond=micros % 1_000 * 1_000),
        "time-micros": at.replace(microsecond=micros % 1_000_000),
        "timestamp-millis": moment.replace(microsecond=micros % 1_000 * 1_000),
        "timestamp-micros": moment.replace(microsecond=micros % 1_000_000),
        "local-timestamp-micros": moment.replace(tzinfo=None),
        "uuid": UUID(int=rng.getrandbits(128)),
        "decimal": Decimal(rng.randint(-999_999, 999_999)).scaleb(-2),
    }
    return made[kind]


def bare(node: Any) -> Any:
    """Without logical types: what fastavro is compared by."""
    if isinstance(node, dict):
        return {
            name: bare(part)
            for name, part in node.items()
            if name not in {"logicalType", "precision", "scale"}
        }
    return [bare(part) for part in node] if isinstance(node, list) else node


def normal(node: Any, found: Any) -> Any:
    """A value as its bytes carry it, with equal ones made the same: digits of UUIDs, signs of decimals."""
    if isinstance(node, dict) and node["type"] == "record":
        return {field["name"]: normal(field["type"], found[field["name"]]) for field in node["fields"]}
    if isinstance(node, dict) and node["type"] == "array":
        return [normal(node["items"], item) for item in found]
    if isinstance(node, dict) and node["type"] == "map":
        return {key: normal(node["values"], item) for key, item in found.items()}
    if node == LOGICAL["uuid"]:
        return found.lower()
    return int.from_bytes(found, "big", signed=True) if node == LOGICAL["money"] else found


def evolved(rng: Random, node: Any) -> Any:
    """A later version of a schema, which may or may not be able to read the earlier one."""
    widened = {
        "int": ["long", "float", "double"],
        "long": ["float"],
        "float": ["double"],
        "string": ["bytes"],
    }
    if isinstance(node, str):
        return rng.choice([node, node, ["null", node], *widened.get(node, [])])
    if not isinstance(node, dict) or node["type"] != "record":
        return node
    fields = [{**field, "type": evolved(rng, field["type"])} for field in node["fields"]]
    fields = [field for field in fields if rng.random() < 0.8]
    if fields and rng.random() < 0.3:
        fields[0] = {**fields[0], "name": "renamed", "aliases": [fields[0]["name"]]}
    if rng.random() < 0.5:
        fields.append({"name": "more", "type": {"type": "array", "items": "int"}, "default": [1]})
    return {**node, "fields": fields}


# ---- damage --------------------------------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    groups = bytearray()
    while number >= 0x80:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])


def damaged(rng: Random, data: bytes, size: int) -> bytes:
    """Return the data with one to four mutations, mostly after the first `size` bytes, which only name the schema."""
    body = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        place = rng.randint(0 if rng.random() < 0.1 else min(size, len(body)), len(body))
        wound = rng.randrange(7)
        if wound == 0 and place < len(body):
            body[place] ^= 1 << rng.randrange(8)
        elif wound == 1 and place < len(body):
            body[place] = rng.choice(INTERESTING)
        elif wound == 2:
            body[place:place] = rng.randbytes(rng.randint(1, 4))
        elif wound == 3:
            del body[place : place + rng.randint(1, 4)]
        elif wound == 4:
            body[place : place + 1] = varint(rng.choice(NUMBERS))
        elif wound == 5:
            other = rng.randint(0, len(body))
            body[place:place] = body[min(place, other) : max(place, other)][:40]
        else:
            body[place : place + rng.randint(0, 10)] = bytes(rng.choice(INTERESTING[:4]) for _ in range(10))
    return bytes(body)


# ---- the specification, once more -----------------------------------------------------------------------------------


class Refused(Exception):
    """The bytes are not what the schema says."""


class Strict:
    """Reads Avro slowly and by the letter; another way than the library's, to compare it with."""

    def __init__(self, data: bytes) -> None:
        self._left = BytesIO(data)

    def whole(self, node: Any) -> Any:
        found = self._read(node)
        if self._left.read(1):
            raise Refused
        return found

    def _take(self, size: int) -> bytes:
        data = self._left.read(size) if size >= 0 else b""
        if len(data) != size:
            raise Refused
        return data

    def _number(self, bits: int) -> int:
        number = 0
        for group in range(math.ceil(bits / 7)):
            (byte,) = self._take(1)
            number |= byte % 128 << 7 * group
            if byte < 128:
                found = -(number // 2) - 1 if number % 2 else number // 2
                if not -(2 ** (bits - 1)) <= found < 2 ** (bits - 1):
                    raise Refused
                return found
        raise Refused

    def _text(self) -> str:
        try:
            return self._take(self._number(64)).decode()
        except UnicodeDecodeError as error:
            raise Refused from error

    def _choice(self, choices: list[Any]) -> Any:
        number = self._number(32)
        if not 0 <= number < len(choices):
            raise Refused
        return choices[number]

    def _items(self, read: Callable[[], Any]) -> Iterator[Any]:
        while count := self._number(64):
            size = self._number(64) if count < 0 else None
            start = self._left.tell()
            for _ in range(abs(count)):
                yield read()  # each takes a byte at least, so a wrong count soon comes to the end
            if size is not None and self._left.tell() - start != size:
                raise Refused

    def _pairs(self, node: Any) -> dict[str, Any]:
        pairs = list(self._items(lambda: (self._text(), self._read(node))))
        if len(dict(pairs)) != len(pairs):
            raise Refused
        return dict(pairs)

    def _read(self, node: Any) -> Any:
        if isinstance(node, list):
            return self._read(self._choice(node))
        kind = node if isinstance(node, str) else node["type"]
        readers: dict[str, Callable[[], Any]] = {
            "null": lambda: None,
            "boolean": lambda: {b"\x00": False, b"\x01": True}[self._take(1)],
            "int": lambda: self._number(32),
            "long": lambda: self._number(64),
            "float": lambda: unpack("<f", self._take(4))[0],
            "double": lambda: unpack("<d", self._take(8))[0],
            "bytes": lambda: self._take(self._number(64)),
            "string": self._text,
            "enum": lambda: self._choice(node["symbols"]),
            "fixed": lambda: self._take(node["size"]),
            "array": lambda: list(self._items(lambda: self._read(node["items"]))),
            "map": lambda: self._pairs(node["values"]),
            "record": lambda: {field["name"]: self._read(field["type"]) for field in node["fields"]},
        }
        try:
            return readers[kind]()
        except KeyError as error:  # a boolean of neither kind
            raise Refused from error


# ---- rounds --------------------------------------------------------------------------------------------------------


class _Ids:
    """A registry of one schema."""

    subjects = TopicName()

    def __init__(self, known: Any) -> None:
        self._known = json.dumps(known)

    def schema(self, schema_id: int | str) -> Registered:
        if schema_id != 1:
            raise DeserializationError(f"schema id {schema_id}: unknown")
        return Registered("AVRO", self._known)

    def id_of(self, subject: str, definition: Definition) -> int:
        return 1


def same(one: Any, other: Any) -> bool:
    """Also of NaN, and not of 0.0 and -0.0 or 1 and True. The order of a map's entries means nothing."""
    return repr(sorted_maps(one)) == repr(sorted_maps(other))


def sorted_maps(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: sorted_maps(value[key]) for key in sorted(value)}
    return [sorted_maps(each) for each in value] if isinstance(value, list) else value


class Case(NamedTuple):
    """Bytes for a decoder.

    Attributes:
        codec: The codec that decodes them.
        data: the bytes.
        again: encodes and decodes the read value once more.
        accepted: looks at the bytes if they were read.
    """

    codec: Codec[Any]
    data: bytes
    again: Codec[Any]
    accepted: Callable[[bytes], None] = lambda _data: None


def judge(case: Case) -> None:
    codec, data = case.codec, case.data
    column = codec.decode_many([None, data, None])
    try:
        found = codec.decode(data)
    except DeserializationError as error:
        message = error.message
    else:
        assert same(column.values, [None, found, None])
        assert column.poison == {}
        assert same(case.again.decode(case.again.encode(found)), found), "the value read does not come back"
        case.accepted(data)
        return
    assert column.values == [None, None, None]
    assert {place: error.message for place, error in column.poison.items()} == {1: message}
    assert len(message) < LONGEST_MESSAGE, "the message quotes the data"


def by_the_letter(codec: Codec[Any], node: Any, data: bytes) -> None:
    try:
        expected = repr(Strict(data).whole(node))
    except Refused:
        expected = "poison"
    column = codec.decode_many([data])
    found = "poison" if column.poison else repr(column.values[0])
    assert found == expected, f"{data.hex()} is {found} of {node}, by the letter {expected}"


def as_each(codec: Avro[Any], batch: list[bytes]) -> None:
    """A batch by columns, where they know the schema, has the values and the poison of its messages."""
    column = codec.decode_many(batch)
    assert len(column.values) == len(batch)
    for index, data in enumerate(batch):
        try:
            expected = repr(codec.decode(data))
        except DeserializationError as error:
            expected = f"poison: {error.message}"
        error_found = column.poison.get(index)
        found = f"poison: {error_found.message}" if error_found else repr(column.values[index])
        assert found == expected, f"{data.hex()} is {found} in a batch, alone {expected}"


def batch_round(rng: Random) -> Iterator[Case]:
    """A flat record, as columns read it; good and damaged messages side by side."""
    size = rng.randint(1, 5)
    kinds = ["boolean", "int", "long", "float", "double", "bytes", "string", "string", "enum", "fixed"]
    fields = []
    for number in range(size):
        kind: Any = rng.choice(kinds)
        if kind == "enum":
            kind = {
                "type": kind,
                "name": f"N{number}",
                "symbols": [f"S{i}" for i in range(rng.choice([1, 3, 70]))],
            }
        elif kind == "fixed":
            kind = {"type": kind, "name": f"N{number}", "size": rng.randint(1, 5)}
        if rng.random() < OPTIONAL_SHARE:
            kind = rng.sample(["null", kind], 2)
        fields.append({"name": f"f{number}", "type": kind})
    node = {"type": "record", "name": "R", "fields": fields}
    framings: list[Framing] = [Plain(), SingleObject()]
    framing = rng.choice(framings)
    codec: Avro[Any] = Avro(node, framing)
    codec._columns_from = 1
    data = codec.encode(value(rng, node))
    assert codec.decode_many([data]).poison == {}
    for _ in range(DAMAGES):
        good = [codec.encode(value(rng, node)) for _ in range(rng.randint(1, 6))]
        batch = [each if rng.random() < GOOD_SHARE else damaged(rng, each, framing.size) for each in good]
        codec._pause = 0
        as_each(codec, batch)
        yield Case(codec, batch[0], codec)


def avro_round(rng: Random) -> Iterator[Case]:
    node = schema(rng)
    framings: list[Framing] = [Plain(), SingleObject(), Confluent(_Ids(node), "s")]
    framing = rng.choice(framings)
    codec: Avro[Any] = Avro(node, framing)
    plain: Avro[Any] = Avro(bare(node), Plain())
    parsed = parse_schema(bare(node))

    def as_fastavro(data: bytes) -> None:
        stream = BytesIO(data)
        theirs = schemaless_reader(stream, parsed, None)
        assert stream.tell() == len(data)
        assert same(plain.decode(data), theirs), "fastavro reads another value"

    def as_carried(data: bytes) -> None:
        again = codec.encode(codec.decode(data))
        before, after = (normal(node, plain.decode(each[framing.size :])) for each in (data, again))
        assert same(before, after), f"{before} was read as if it were {after}"

    given = value(rng, node)
    data = codec.encode(given)
    assert same(codec.decode(data), given), "the value written does not come back"
    carried = plain.decode(data[framing.size :])
    out = BytesIO()
    schemaless_writer(out, parsed, carried)
    assert out.getvalue() == data[framing.size :], "fastavro writes other bytes"
    yield Case(codec, data, codec)
    for _ in range(DAMAGES):
        wounded = damaged(rng, data, framing.size)
        yield Case(codec, wounded, codec, as_carried)
        by_the_letter(plain, bare(node), wounded[framing.size :])
        yield Case(plain, wounded[framing.size :], plain, as_fastavro)
    try:
        later = evolved(rng, node)
        reader: Avro[Any] = Avro(later, Confluent(_Ids(node), "s"))
    except ConfigurationError:
        return
    body = data[framing.size :]
    for each in (body, *(damaged(rng, body, 0) for _ in range(DAMAGES))):
        yield Case(reader, b"\x00\x00\x00\x00\x01" + each, Avro(later, Plain()))


def plain_round(rng: Random) -> Iterator[Case]:
    codec = rng.choice(CODECS)()
    seeds = [
        '{"a": [1, 2.5, null, "é"]}',
        "[" * rng.randint(1, 3_000),
        '"\\ud800"',
        "1e400",
        "NaN",
        "-0.0",
        "text",
    ]
    data = rng.choice([rng.choice(seeds).encode(), rng.randbytes(8), rng.randbytes(rng.randint(0, 40))])
    for _ in range(DAMAGES):
        yield Case(codec, data, codec)
        data = damaged(rng, data, 0)


def run_round(seed: int, number: int) -> None:
    """One round. Whatever is wrong comes out with all that is needed to do it again."""
    rng = Random(f"{seed}:{number}")
    case: Case | None = None
    chance = rng.random()
    play = plain_round if chance < PLAIN_SHARE else batch_round if chance < BATCH_SHARE else avro_round
    try:
        for case in play(rng):
            judge(case)
    except BaseException as error:
        print(f"seed {seed} round {number}: {error!r}", file=sys.stderr)
        if case is not None:
            schema_text = case.codec.schema.text if isinstance(case.codec, Avro) else ""
            print(case.codec, schema_text, case.data[:2_000].hex(), sep="\n", file=sys.stderr)
        raise


def main() -> None:
    """Round after round until the time is over."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--round", type=int)
    given = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # else numpy reserves memory for each processor
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    if given.round is not None:
        run_round(given.seed, given.round)
        return
    deadline, number = time.monotonic() + given.seconds, 0
    while time.monotonic() < deadline:
        run_round(given.seed, number)
        number += 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"seed {given.seed}: {number} rounds, at most {peak} MB")


if __name__ == "__main__":
    main()
