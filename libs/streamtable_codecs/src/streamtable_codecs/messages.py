"""Messages of Protobuf as their files describe them: their places, their fields, and what a change of them means."""

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FeatureSet, FileDescriptorProto
from google.protobuf.message import DecodeError

from exactjson.rows import AS_JSON, record
from streamtable_codecs.schemas import Definition

_TOKEN = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|[\w.]+|[{};]", re.DOTALL)
_F = FieldDescriptor
_NUMBERS = {
    _F.TYPE_ENUM: ["enum"],
    _F.TYPE_BOOL: ["bool"],
    _F.TYPE_INT32: ["enum", "int32"],
    _F.TYPE_INT64: ["enum", "int32", "int64", "uint32"],
    _F.TYPE_UINT32: ["uint32"],
    _F.TYPE_UINT64: ["uint32", "uint64"],
    _F.TYPE_SINT32: ["sint32"],
    _F.TYPE_SINT64: ["sint32", "sint64"],
    _F.TYPE_FIXED32: ["fixed32"],
    _F.TYPE_FIXED64: ["fixed64"],
    _F.TYPE_SFIXED32: ["sfixed32"],
    _F.TYPE_SFIXED64: ["sfixed64"],
    _F.TYPE_FLOAT: ["float"],
    _F.TYPE_DOUBLE: ["double"],
    _F.TYPE_STRING: ["string"],
    _F.TYPE_BYTES: ["bytes", "string"],
}
"""The types whose bytes a type reads as the same value."""
_COLUMNS = {
    kind: "bytes"
    if names == ["bytes", "string"]
    else {"bool": "boolean", "float": "double", "double": "double"}.get(names[-1], "long")
    for kind, names in _NUMBERS.items()
} | {_F.TYPE_ENUM: "string", _F.TYPE_STRING: "string"}
"""The Avro types of fields that are no messages."""
_MESSAGES = {_F.TYPE_MESSAGE, _F.TYPE_GROUP}


@dataclass
class PlacedMessage:
    """A message in a file, with those that are nested in it."""

    name: str
    nested: "list[PlacedMessage]" = field(default_factory=list)
    of: DescriptorProto | None = None


def definition_of(file: FileDescriptor, record: str) -> Definition:
    """Return the schema of a file as it is registered: with those that it imports, but for Google's own."""
    others = [
        each for each in file.dependencies if not each.name.startswith(("google/protobuf/", "confluent/"))
    ]
    imports = tuple((each.name, definition_of(each, each.name)) for each in others)
    return Definition("PROTOBUF", base64.b64encode(file.serialized_pb).decode("ascii"), record, imports)


def place_of(message: Descriptor) -> tuple[int, ...]:
    """Return the place of a message in its file: its index in the file, or its parent's place and its index there."""
    parent = message.containing_type
    if parent is None:
        return (list(message.file.message_types_by_name).index(message.name),)
    return (*place_of(parent), [each.name for each in parent.nested_types].index(message.name))


def messages_in(text: str) -> tuple[str, list[PlacedMessage]]:
    """Return the package of a file and its messages, in order. `text`: its source, or its descriptor in base64.

    Raises:
        ValueError: It is neither.
    """
    return described(text) or _messages_of_source(text)


def described(text: str) -> tuple[str, list[PlacedMessage]] | None:
    """Return the package of a file and its messages, with their fields; None if the text is no descriptor in base64."""
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, DecodeError, ValueError):
        return None
    return file.package, [_described(each, file.options.features) for each in file.message_type]


def _described(message: DescriptorProto, of_file: FeatureSet) -> PlacedMessage:
    entries = {each.name for each in message.nested_type if each.options.map_entry}
    for each in () if message.options.map_entry else message.field:
        encoding = each.options.features.message_encoding or of_file.message_encoding
        is_message = each.type == _F.TYPE_MESSAGE and each.type_name.rpartition(".")[2] not in entries
        if is_message and encoding == FeatureSet.DELIMITED:
            each.type = each.TYPE_GROUP  # as editions call it no more
    return PlacedMessage(message.name, [_described(each, of_file) for each in message.nested_type], message)


def _messages_of_source(text: str) -> tuple[str, list[PlacedMessage]]:
    """Return the package and the messages of a .proto source, which needs no more than its braces for this."""
    package = ""
    found: list[PlacedMessage] = []
    open_blocks: list[PlacedMessage | None] = []
    tokens = [each for each in _TOKEN.findall(text) if not each.startswith(("//", "/*"))]
    start = 0
    for at, word in enumerate(tokens):
        if word == "{":
            head, message = tokens[start:at], None
            if len(head) == 2 and head[0] == "message":  # noqa: PLR2004 - the word and the name
                message = PlacedMessage(head[1])
                parent = open_blocks[-1] if open_blocks else None
                (found if parent is None else parent.nested).append(message)
            open_blocks.append(message)
        elif word == "}":
            if not open_blocks:
                raise ValueError("not a Protobuf file: a brace closes nothing")
            open_blocks.pop()
        elif word == ";" and tokens[start] == "package":
            package = tokens[start + 1]
        if word in {"{", "}", ";"}:
            start = at + 1
    if open_blocks or not found:
        raise ValueError("not a Protobuf file with messages")
    return package, found


def message_at(
    package: str, messages: Sequence[PlacedMessage], place: Sequence[int]
) -> tuple[str, PlacedMessage]:
    """Return the full name of the message at a place, and the message. Raises `IndexError` if there is none."""
    names, found = [package] if package else [], None
    for index in place:
        if index < 0:
            raise IndexError(index)
        found = messages[index]
        names.append(found.name)
        messages = found.nested
    if found is None:
        raise IndexError(0)
    return ".".join(names), found


# ---- fields -------------------------------------------------------------------------------------------------------------


def shape_of(message: Descriptor) -> dict[str, Any]:
    """Return the fields of a message, by number, as a JSON schema: two of them are compared as the schemas of types are."""
    shapes: dict[str, Any] = {}
    _add_shape(message, shapes)
    return {"$ref": f"#/$defs/{message.full_name}", "$defs": shapes}


def _add_shape(message: Descriptor, shapes: dict[str, Any]) -> None:
    if message.full_name in shapes:
        return
    fields: dict[str, Any] = {}
    shape = shapes[message.full_name] = {"type": "object", "properties": fields}
    for each in message.fields:
        inner = each.message_type
        name, is_map = ("", False) if inner is None else (inner.full_name, inner.GetOptions().map_entry)
        fields[str(each.number)] = _shape(each.type, name, repeated=each.is_repeated, is_map=is_map)
        if inner is not None:
            _add_shape(inner, shapes)
    if required := [str(each.number) for each in message.fields if each.is_required]:
        shape["required"] = required


def columns_of(message: Descriptor) -> Any:
    """Return the Avro schema of a message, as `exactjson.rows.columns` does of JSON: Google's own messages are JSON in texts."""
    return _columns_of(message, count(1), ())


def _columns_of(message: Descriptor | None, numbers: Iterator[int], inside: tuple[str, ...]) -> Any:
    assert message is not None, "a field that is no number or text has a message"
    if message.full_name in inside or message.full_name.startswith("google.protobuf."):
        return AS_JSON
    inside = (*inside, message.full_name)
    fields: dict[str, Any] = {}
    for each in message.fields:
        inner = each.message_type
        if inner is not None and inner.GetOptions().map_entry:
            values = inner.fields_by_name["value"]
            one = _COLUMNS.get(values.type) or _columns_of(values.message_type, numbers, inside)
            fields[each.name] = {"type": "map", "values": one}
            continue
        one = _COLUMNS.get(each.type) or _columns_of(inner, numbers, inside)
        if each.is_repeated:
            one = {"type": "array", "items": one}
        fields[each.name] = ["null", one] if each.has_presence and not each.is_required else one
    return record(fields, numbers) if fields else AS_JSON


def shape_in_files(files: Iterable[tuple[str, Sequence[PlacedMessage]]], name: str) -> dict[str, Any] | None:
    """Return the fields of the message of this full name in files; None if its file is a source, which does not say them."""
    found = {full: each.of for file in files for full, each in all_messages(*file) if each.of is not None}
    shapes = {}
    for full_name, each in found.items():
        maps = {f"{full_name}.{inner.name}" for inner in each.nested_type if inner.options.map_entry}
        fields: dict[str, Any] = {}
        for one in each.field:
            inner, many = one.type_name.removeprefix("."), one.label == one.LABEL_REPEATED
            # Of a message in a file that is not there nothing is known.
            known = one.type not in _MESSAGES or inner in found
            fields[str(one.number)] = known and _shape(one.type, inner, repeated=many, is_map=inner in maps)
        shapes[full_name] = {"type": "object", "properties": fields}
    return {"$ref": f"#/$defs/{name}", "$defs": shapes} if name in shapes else None


def all_messages(package: str, messages: Sequence[PlacedMessage]) -> Iterator[tuple[str, PlacedMessage]]:
    """Yield the messages of a file, also those that are inside of others, with their full names."""
    for each in messages:
        name = f"{package}.{each.name}" if package else each.name
        yield name, each
        yield from all_messages(name, each.nested)


def _shape(kind: int, message: str, *, repeated: bool, is_map: bool) -> dict[str, Any]:
    one: dict[str, Any] = {"$ref": f"#/$defs/{message}"} if kind in _MESSAGES else {"type": _NUMBERS[kind]}
    if kind == _F.TYPE_GROUP:  # whose bytes are no message's, and the other way round
        one = {"type": ["object", "group"], "properties": {"group": one}, "required": ["group"]}
    if not repeated:
        return one
    # A map keeps the last entry of each key, and a list all of them.
    array = "array" if is_map or kind not in _MESSAGES else ["array", "list"]
    # A field that is repeated now is read from one value too, and one value from many would be the last of them.
    return {"anyOf": [{"type": array, "items": one}, one]}
