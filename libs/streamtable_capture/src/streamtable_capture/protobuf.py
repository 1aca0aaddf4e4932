"""Messages of Protobuf as Connect's converter writes them, read by the schema that a registry has."""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from streamtable.errors import DeserializationError


class _Placed(NamedTuple):
    """A message in a file, with those that are nested in it."""

    name: str
    nested: list["_Placed"]

    @staticmethod
    def of(message: DescriptorProto) -> "_Placed":
        return _Placed(message.name, list(map(_Placed.of, message.nested_type)))


def message_reader(
    text: str, end_of: Callable[[bytes, int], int], name_of: Callable[[bytes, str, Sequence[Any]], str]
) -> Callable[[bytes], dict[str, Any]]:
    """Return a function that reads the fields of a record, which begins with the bytes that say which message it is.

    Args:
        text: The descriptor of the file in base64, as a registry returns it for `format=serialized`.
        end_of: Returns the end of these bytes, which begin at the number.
        name_of: Returns the full name of the message that they name, in a package with messages.

    Raises:
        ValueError: The text is no descriptor that stands by itself.
    """
    pool = DescriptorPool()
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
        _add_imports(pool, file)
        pool.Add(file)
        messages = [_Placed.of(each) for each in file.message_type]
    except (binascii.Error, DecodeError) as error:
        raise ValueError(
            "the registry has the source of a Protobuf schema only, and not its descriptor (format=serialized)"
        ) from error
    except (TypeError, KeyError) as error:
        raise ValueError(f"the Protobuf schema does not stand by itself: {error}") from error
    classes: dict[bytes, type[Message]] = {}

    def at(place: bytes) -> type[Message]:
        try:
            name = name_of(place, file.package, messages)
        except IndexError as error:
            raise DeserializationError(f"the schema has no message {error}") from error
        return GetMessageClass(pool.FindMessageTypeByName(name))

    def read(data: bytes) -> dict[str, Any]:
        end = end_of(data, 0)
        place = data[:end]
        made = classes.get(place) or classes.setdefault(place, at(place))
        try:
            return _fields(made.FromString(data[end:]))
        except DecodeError as error:
            raise DeserializationError(f"not a message {made.DESCRIPTOR.full_name}: {error}") from error

    return read


def _add_imports(pool: DescriptorPool, file: FileDescriptorProto) -> None:
    """Add Google's own files, which registries do not keep; options of Confluent's say nothing about the bytes."""
    from google.protobuf import struct_pb2, timestamp_pb2, wrappers_pb2  # noqa: PLC0415 - few schemas have them

    known = {each.DESCRIPTOR.name: each.DESCRIPTOR for each in (struct_pb2, timestamp_pb2, wrappers_pb2)}
    kept = [name for name in file.dependency if name in known]
    for name in kept:
        pool.AddSerializedFile(known[name].serialized_pb)
    others = [name for name in file.dependency if name not in known and name != "confluent/meta.proto"]
    if others:
        raise KeyError(f"it imports {', '.join(others)}")
    del file.dependency[:]
    file.dependency.extend(kept)
    file.ClearField("public_dependency")
    file.ClearField("weak_dependency")


def _fields(message: Message) -> dict[str, Any]:
    """Return the fields of a message by name."""
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def _value(message: Message, field: Any) -> Any:
    """Return the value of a field; None if it can be missing and is."""
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if field.is_repeated and isinstance(value, Mapping):
        plain = _plain(field.message_type.fields_by_name["value"])
        return {key: plain(each) for key, each in value.items()}
    return list(map(_plain(field), value)) if field.is_repeated else _plain(field)(value)


def _plain(field: Any) -> Callable[[Any], Any]:
    """Return what makes a value of a field plain."""
    if field.type == FieldDescriptor.TYPE_ENUM:
        names = field.enum_type.values_by_number
        return lambda number: names[number].name if number in names else number
    if field.message_type is None:
        return lambda value: value
    if field.message_type.full_name == "google.protobuf.Timestamp":
        return lambda value: value.ToMilliseconds()
    if field.message_type.file.name == "google/protobuf/wrappers.proto":
        return lambda value: value.value
    return _fields
