"""The codec of Protobuf messages."""

import json
from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import Any, Generic, TypeVar, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError, EncodeError, Message

from exactjson import shaped, unreadable
from streamtable import Decoded, Plain, decode_each
from streamtable.base.evolution import marked
from streamtable.errors import ConfigurationError, DeserializationError, SerializationError
from streamtable_codecs import messages
from streamtable_codecs.framing import Apicurio, Confluent, Framed, Glue, InRegistry
from streamtable_codecs.schemas import Definition

M = TypeVar("M", bound=Message)

_Framing = Confluent | Apicurio | Glue | Plain


class Protobuf(Framed, Generic[M]):
    """A codec of Protobuf messages of a generated class. Fields that the class does not know are kept.

    The fields of a state's rows are recorded by their numbers and types; a program whose class reads a field as another type, or
    needs one that rows may lack, stops at its start, with `StateMeaningChanged`. The defaults of proto2 are not compared, and neither
    are the numbers of its enums: a row without the field, or with a number that was removed, is read as the new default. Nor is it
    compared which fields are in a `oneof`: do not move two fields into one, as rows that have both are read with the last alone.

    As the codec of keys it writes equal messages as the same bytes; a message with floats, whose equal values may differ, is
    refused. Rows of such keys are asked for one by one: messages cannot be the keys of a dict.

    Args:
        message: The generated class.
        framing: `Plain()` (default), `Confluent(registry)`, `Apicurio(registry)` or `Glue(registry)`: the id of the schema,
            the message's place, name or number in its file, then the message.
        max_bytes: The largest message that is decoded; larger ones are poison.
    """

    def __init__(
        self,
        message: type[M],
        framing: Confluent | Apicurio | Glue | Plain | None = None,
        *,
        max_bytes: int = 10_000_000,
    ) -> None:
        framing = framing or Plain()
        self.message, self.framing = message, framing
        self._descriptor = cast("Descriptor", message.DESCRIPTOR)
        self._parse = message.FromString
        self._required = _has_required(self._descriptor, set())
        self._max_bytes = max_bytes
        self._deterministic = False
        self._prefix: bytes | None = b"" if isinstance(framing, Plain) else None
        # By the prefix with the place: why such records cannot be read; "" if they can.
        self._known: dict[bytes, str] = {}
        self._of_topic = {}

    @property
    def title(self) -> str:
        """The name of the message."""
        return self._descriptor.name

    def plain(self, value: M) -> Any:
        """See `ports.ShownValues`."""
        return MessageToDict(value, preserving_proto_field_name=True)

    @cached_property
    def columns(self) -> Any:
        """See `ports.ColumnValues`."""
        return messages.columns_of(self._descriptor)

    def row(self, value: M) -> Any:
        """See `ports.ColumnValues`."""
        found = MessageToDict(
            value, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        return shaped(found, self.columns)

    @property
    def recorded(self) -> str:
        """See `ports.EvolvingRows`. The numbers of fields and their types are recorded; of keys no change is accepted."""
        shape = messages.shape_of(self._descriptor)
        if self._deterministic:
            # Lists as they were recorded before they differed from maps: the texts have to be equal.
            return f"Protobuf key {json.dumps(shape)}".replace('["array", "list"]', '"array"')
        return f"Protobuf{marked(shape)}"

    @property
    def definition(self) -> Definition:
        """The schema as it is registered."""
        return messages.definition_of(self._descriptor.file, self._descriptor.full_name)

    @property
    def key_form(self) -> str:
        """See `base.keys.form_of`."""
        name = "" if isinstance(self.framing, Plain) else self._descriptor.full_name
        return f"{type(self.framing).__name__} {name}"

    def for_keys(self) -> "Protobuf[M]":
        """See `ports.CanonicalKeys`. Raises `ConfigurationError` for a message with floats."""
        if place := _float_in(self._descriptor, ()):
            raise ConfigurationError(
                f"{self!r} cannot be the codec of a key: equal values of {place} may have different bytes"
            )
        made = copy(self)
        made._deterministic = True  # noqa: SLF001 - its own copy
        made._of_topic = {}  # noqa: SLF001
        return made

    def prepare(self) -> bytes:
        """See `ports.PreparedCodec`. Returns the prefix of what it writes."""
        if self._prefix is None:
            assert not isinstance(self.framing, Plain), "Plain has a prefix from the start"
            place = self.framing.places.written(self._descriptor)
            self._prefix = self.framing.header(self.definition) + place
        return self._prefix

    def encode(self, value: M) -> bytes:
        """See `ports.Codec`. With the framing of a registry, the first call may also raise the errors of the registry."""
        if not isinstance(value, self.message):
            raise SerializationError(f"{self.title}: expected {self.title}, got {type(value).__name__}")
        prefix = self.prepare()
        try:
            return prefix + value.SerializeToString(deterministic=self._deterministic)
        except (EncodeError, ValueError) as error:
            raise SerializationError(f"{self.title}: {error}") from error

    def decode(self, data: bytes) -> M:
        """See `ports.Codec`."""
        if len(data) > self._max_bytes:
            raise DeserializationError(f"{self.title}: {len(data)} bytes, at most {self._max_bytes}")
        try:
            value = self._parse(self._body(data))
        except DecodeError as error:
            raise DeserializationError(
                f"{self.title}: not such a message: {error} ({len(data)} bytes)"
            ) from error
        if self._required and not value.IsInitialized():
            missing = ", ".join(cast("Any", value).FindInitializationErrors())
            raise DeserializationError(f"{self.title}: required fields are missing: {missing}")
        return value

    def decode_many(self, data: Sequence[bytes | None]) -> Decoded[M]:
        """See `ports.Codec`."""
        return decode_each(self.decode, data)

    def _body(self, data: bytes) -> bytes:
        """Return the message without its prefix. Raises `DeserializationError`, `RetryLater`."""
        framing = self.framing
        if isinstance(framing, Plain):
            return data
        size = framing.size
        # The short form first: most messages are the first of their file.
        if self._known.get(data[: size + 1]) == "":
            return data[size + 1 :]
        size = framing.size_of(data)
        end = framing.places.end(data, size) if len(data) > size else size
        prefix = data[:end]
        if prefix not in self._known:
            self._known[prefix] = self._writer_fault(framing, data[:size], data[size:end])
        if reason := self._known[prefix]:
            raise DeserializationError(reason)
        return data[end:]

    def _writer_fault(self, framing: InRegistry, prefix: bytes, place: bytes) -> str:
        """Return why records written as the message at a place cannot be read; "" if it can.

        Raises:
            DeserializationError: The prefix names no message, or another one.
        """
        number, found = framing.registered(prefix, "PROTOBUF")
        try:
            file = messages.messages_in(found.text)
            name = framing.places.name(place, *file)
        except ValueError as error:
            raise DeserializationError(f"schema id {number}: {error}") from error
        except IndexError as error:
            raise DeserializationError(f"schema id {number} has no message {error}") from error
        expected = self._descriptor.full_name
        if name != expected:
            raise DeserializationError(f"schema id {number}: a message {name}, not {expected}")
        imported = filter(None, map(messages.described, found.references.values()))
        written = messages.shape_in_files([file, *imported], name)
        reason = unreadable(written, messages.shape_of(self._descriptor)) if written else ""
        return reason and f"{self.title} by schema id {number} cannot be read, by numbers of fields: {reason}"

    def __repr__(self) -> str:
        return f"Protobuf({self._descriptor.full_name}, {type(self.framing).__name__})"


def _has_required(message: Descriptor, seen: set[str]) -> bool:
    if message.full_name in seen:
        return False
    seen.add(message.full_name)
    return any(
        each.is_required or (each.message_type is not None and _has_required(each.message_type, seen))
        for each in message.fields
    )


def _float_in(message: Descriptor, inside: tuple[str, ...]) -> str:
    """Return the first field that holds floats, also in the messages of fields; "" if there is none."""
    for each in message.fields:
        if each.type in {FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE}:
            return str(each.full_name)
        inner = each.message_type
        if inner is not None and inner.full_name not in inside:
            found = _float_in(inner, (*inside, message.full_name))
            if found:
                return found
    return ""
