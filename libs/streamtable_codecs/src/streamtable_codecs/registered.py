"""Records of topics whose program is not at hand, read by the schema that they name in a registry.

The console and the command line load `from_environment` as an entry point of the group `streamtable.decoders`.
"""

import base64
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Literal

from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError, Message

from exactavro import Malformed, Schema, Unusable, decode, make_reader
from streamtable.base.environment import secret_in
from streamtable.base.types import Headers
from streamtable.errors import ConfigurationError, DeserializationError, RetryLater, StreamtableError
from streamtable_codecs.access import Basic, Bearer, Tls
from streamtable_codecs.framing import Apicurio, Confluent, InRegistry
from streamtable_codecs.messages import messages_in
from streamtable_codecs.registry import HttpRegistry, Registry
from streamtable_codecs.schemas import Registered

Read = Callable[[bytes], tuple[str, Any]]
"""Returns the name of a body's schema, and its value as JSON can express it. Raises `DeserializationError`."""

AWAY_SECONDS = 10.0
"""After a request without an answer the registry is not asked for so long: a page shows hundreds of records."""
UNKNOWN_MAX = 20
"""The maximum ids unknown to the registry that are requested within `AWAY_SECONDS`: other bytes begin with zeros too."""
_LONG_BYTES = 8
_GOOGLE = "google/protobuf/"
# fmt: off
_GOOGLES = {
    "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type", "wrappers",
}
# fmt: on
_VARIABLE = "SCHEMA_REGISTRY_"
_NAMES = ("URL", "USER", "PASSWORD", "PASSWORD_FILE", "TOKEN", "TOKEN_FILE", "CA_FILE")
_OF_A_SERVICE = re.compile(r"SERVICE_HOST|(SERVICE_)?PORT(_\w+)?")
"""Kubernetes sets such variables for a service that is named `schema-registry`."""


def from_environment(environment: Mapping[str, str] = os.environ) -> "RegisteredRecords | None":
    """Return the decoder of the registry at `SCHEMA_REGISTRY_URL`; None if the variable is empty, or not there.

    `SCHEMA_REGISTRY_USER` and `..._PASSWORD`, or `..._TOKEN`, are its login, and `..._CA_FILE` its certificate authorities. A
    password and a token may be in the file that `..._PASSWORD_FILE` or `..._TOKEN_FILE` names.

    Raises:
        ConfigurationError: A variable is unknown, the URL or a file cannot be used, or there are a user and a token.
    """
    given = _given(environment)
    if not given["URL"]:
        return None
    if given["USER"] and given["TOKEN"]:
        raise ConfigurationError(f"{_VARIABLE}USER and {_VARIABLE}TOKEN: give one of them")
    bearer = Bearer(given["TOKEN"]) if given["TOKEN"] else None
    auth = Basic(given["USER"], given["PASSWORD"]) if given["USER"] else bearer
    tls = Tls(ca=given["CA_FILE"]) if given["CA_FILE"] else None
    return RegisteredRecords(HttpRegistry(given["URL"], auth=auth, tls=tls, timeout=1.0, attempts=1))


def _given(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings by the ends of their names, secrets in the place of their files. Raises `ConfigurationError`."""
    named = {
        name.removeprefix(_VARIABLE): text for name, text in environment.items() if name.startswith(_VARIABLE)
    }
    for name in sorted(named.keys() - _NAMES):
        if not _OF_A_SERVICE.fullmatch(name):
            known = ", ".join(_VARIABLE + each for each in _NAMES)
            raise ConfigurationError(f"{_VARIABLE}{name}: there is no such setting; there are {known}")
    given = dict.fromkeys(_NAMES, "") | named
    for name, file in (("PASSWORD", "PASSWORD_FILE"), ("TOKEN", "TOKEN_FILE")):
        if given[file] and given[name]:
            raise ConfigurationError(f"{_VARIABLE}{name} and {_VARIABLE}{file}: give one of them")
        try:
            given[name] = secret_in(given[file]) if given[file] else given[name]
        except ValueError as error:
            raise ConfigurationError(f"{_VARIABLE}{file}: {error}") from error
    return given


class RegisteredRecords:
    """Decodes keys and values in Confluent's wire format, with a schema's id or GUID in front, or in a header; or in Apicurio's.

    Args:
        registry: The registry.
        clock: Monotonic seconds.
    """

    def __init__(self, registry: Registry, clock: Callable[[], float] = time.monotonic) -> None:
        self._framing, self._apicurio = Confluent(registry), Apicurio(registry)
        self._clock = clock
        self._readers: dict[bytes, Read] = {}
        self._away_until = 0.0
        self._unknown_since, self._unknown = 0.0, 0

    def __call__(
        self, data: bytes, headers: Headers, part: Literal["key", "value"]
    ) -> tuple[str, Any] | None:
        """Return the name of the schema, and the value as JSON can express it; None for bytes in another format.

        Raises:
            DeserializationError: The registry does not know the schema, or the bytes do not fit it.
            RetryLater: The registry does not answer.
        """
        prefix = dict(reversed(headers)).get(f"__{part}_schema_id")
        if prefix:  # and the place of a message in its file
            size = self._framing.size_of(prefix)
            if len(prefix) < size or not self._framing.fits(prefix):
                raise DeserializationError(f"__{part}_schema_id: not Confluent's format: {prefix[:20].hex()}")
            return self._reader(prefix[:size], self._framing)(prefix[size:] + data)
        # No schema has the id 0, so an id that begins so is longer.
        longer = data.startswith(bytes(self._framing.size)) and len(data) > self._apicurio.size
        framing = self._apicurio if longer else self._framing
        size = framing.size_of(data)
        if len(data) <= size or not framing.fits(data[:size]):
            return None
        try:
            return self._reader(data[:size], framing)(data[size:])
        except StreamtableError:
            if len(data) == _LONG_BYTES:
                return None  # a number, which begins with zeros too
            raise

    def _reader(self, prefix: bytes, framing: InRegistry) -> Read:
        if read := self._readers.get(prefix):
            return read
        number, now = framing.unpack(prefix), self._clock()
        if now < self._away_until:
            raise RetryLater("the schema registry did not answer a moment ago")
        if now >= self._unknown_since + AWAY_SECONDS:
            self._unknown_since, self._unknown = now, 0
        if self._unknown >= UNKNOWN_MAX:
            raise DeserializationError(f"schema id {number}: not requested, after {UNKNOWN_MAX} unknown ids")
        try:
            found = self._framing.registry.schema(number)
        except DeserializationError:
            self._unknown += 1
            raise
        except RetryLater:
            self._away_until = self._clock() + AWAY_SECONDS
            raise
        return self._readers.setdefault(prefix, self._made(found, framing))

    def _made(self, found: Registered, framing: InRegistry) -> Read:
        match found.kind:
            case "AVRO":
                return _avro(found)
            case "PROTOBUF":
                return _protobuf(found, framing)
            case "JSON":
                return _json
        raise DeserializationError(f"a schema of type {found.kind[:100]}")


def _avro(found: Registered) -> Read:
    try:
        schema = Schema.load(found.text, found.references)
        reader = make_reader(schema, schema)
    except Unusable as error:
        raise DeserializationError(str(error)) from error

    def read(data: bytes) -> tuple[str, Any]:
        try:
            return schema.name, decode(reader, data, 0)
        except Malformed as error:
            raise DeserializationError(f"{schema.name}: {error}") from error

    return read


def _json(data: bytes) -> tuple[str, Any]:
    try:
        return "json", json.loads(data)
    except ValueError as error:
        raise DeserializationError(f"not JSON: {error}") from error


def _protobuf(found: Registered, framing: InRegistry) -> Read:
    """Messages by the descriptors of the registry: of a source without a descriptor only a compiler could make classes."""
    try:
        files = [_file(text, name) for name, text in (*found.references.items(), ("", found.text))]
    except (ValueError, DecodeError) as error:
        raise DeserializationError(
            "the registry has only the source of this Protobuf schema: show it with the program's --graph"
        ) from error
    package, messages = messages_in(found.text)
    try:
        pool = _pool_of(files)
    except (TypeError, KeyError) as error:  # a file is missing, or has not the messages that another one uses
        raise DeserializationError(f"the files of this schema do not fit each other: {error}") from error
    classes: dict[str, type[Message]] = {}

    def read(data: bytes) -> tuple[str, Any]:
        end = framing.places.end(data, 0)
        try:
            name = framing.places.name(data[:end], package, messages)
            if name not in classes:
                classes[name] = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
            value = classes[name].FromString(data[end:])
        except (DecodeError, LookupError) as error:
            raise DeserializationError(f"not a message of its schema: {error}") from error
        return name, json_format.MessageToDict(value, preserving_proto_field_name=True)

    return read


def _file(text: str, name: str) -> FileDescriptorProto:
    file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    file.name = name or file.name  # a registry may call each "default"; others import it by this name
    return file


def _pool_of(files: list[FileDescriptorProto]) -> descriptor_pool.DescriptorPool:
    """Return a pool of its own: other versions of these files may be those of the process."""
    pool, waiting = descriptor_pool.DescriptorPool(), {each.name: each for each in files}

    def add(name: str) -> None:
        file = waiting.pop(name, None)
        if file is None:
            module = name.removeprefix(_GOOGLE).removesuffix(".proto")
            if not name.startswith(_GOOGLE) or module not in _GOOGLES:
                return
            import_module(f"google.protobuf.{module}_pb2")  # it adds the file to the default pool
            known = descriptor_pool.Default().FindFileByName(name)
            file = FileDescriptorProto.FromString(known.serialized_pb)
        for each in file.dependency:
            add(each)
        pool.Add(file)

    for each in list(waiting):
        add(each)
    return pool
