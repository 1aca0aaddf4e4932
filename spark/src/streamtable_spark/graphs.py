"""Programs that arguments name, `module:NAME` as for web servers, and their groups, flows and codecs."""

import json
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

from exactavro import alone
from streamtable import Avro, Bytes, Group, Json, Plain, SingleObject, Stream, String
from streamtable.base.ports import ColumnValues
from streamtable.errors import DeserializationError, SerializationError
from streamtable.flow import Flow
from streamtable.graph.group import groups_in
from streamtable_spark.errors import ConfigurationError
from streamtable_spark.transforms.avro import AvroCodec
from streamtable_spark.transforms.codecs import Codec, PlainCodec, PlainKind, ProgramCodec

_PLAIN: Mapping[type, PlainKind] = {String: "string", Json: "json", Bytes: "bytes"}


def load(text: str) -> Any:
    """Import a module and return its attribute NAME. Modules are also looked for in the current folder.

    Args:
        text: MODULE:NAME.

    Raises:
        ConfigurationError: There is no such module or name, or the module cannot be imported.
    """
    module, _, name = text.partition(":")
    if not module or not name:
        raise ConfigurationError(f"--graph {text!r}: MODULE:NAME is needed, such as shop.groups:ORDERS")
    if "/" in module or module.startswith(".") or module.endswith(".py"):
        inside = Path(module).name if module.startswith("/") else module
        dotted = inside.removesuffix(".py").strip("./").replace("/", ".")
        raise ConfigurationError(f"--graph {text}: a module name is needed, not a path: {dotted}:{name}")
    if (here := str(Path.cwd())) not in sys.path and "" not in sys.path:
        sys.path.append(here)
    try:
        program = import_module(module)
    except Exception as error:  # an import runs a program, which may raise anything
        raise ConfigurationError(
            f"--graph {text}: {type(error).__name__}: {error}. The module has to be importable here, and where tasks run: install its package, or give it to spark-submit with --py-files"
        ) from error
    try:
        return attrgetter(name)(program)
    except AttributeError as error:
        known = sorted(each for each, value in vars(program).items() if isinstance(value, Group | Flow))
        raise ConfigurationError(
            f"--graph {text}: {module} has no {name!r}; its groups and flows: {', '.join(known) or 'none'}"
        ) from error


def groups_of(program: Any, text: str, *arguments: str) -> list[Group[Any, Any]]:
    """Return the groups of a program: a group, a flow, or several of them.

    Args:
        program: The program; several of them in a list, or by name; or a function that makes it.
        text: The argument that names it, for messages.
        arguments: The arguments of the function; none if it is no function.

    Raises:
        ConfigurationError: It is none, the function fails, or the parts of a flow contradict each other.
    """
    try:
        found = program(*arguments) if arguments else program
        several = list(found.values()) if isinstance(found, Mapping) else found
        groups = groups_in(several if isinstance(several, list | tuple) else [several])
    except Exception as error:  # the function of the user may raise anything
        raise ConfigurationError(f"--graph {text}: {type(error).__name__}: {error}") from error
    if not groups:
        raise ConfigurationError(
            f"--graph {text} is a {type(found).__name__}: a Group, a Flow, or the Contents of a lake is needed"
        )
    return groups


def codec_of(stream: Stream[Any, Any], text: str, instead: Codec | None = None) -> Codec:
    """Return Spark's counterpart of the codec of the values of a program's stream, or `instead` where it has none.

    `text` is the argument that names the program.

    Raises:
        ConfigurationError: There is neither.
    """
    codec = stream.value
    for plain, kind in _PLAIN.items():
        if isinstance(codec, plain):
            return PlainCodec(kind)
    if isinstance(codec, ColumnValues):
        columns = json.dumps(codec.columns)
        return ProgramCodec(columns, framed=False, graph=text, topic=stream.name, row=row)
    if isinstance(codec, Avro) and isinstance(codec.framing, SingleObject | Plain):
        framed = isinstance(codec.framing, SingleObject)
        try:
            return AvroCodec(codec.schema.text, codec.older if framed else (), framed=framed)
        except ConfigurationError:  # Spark has no columns for it
            if instead is None:
                raise
    if instead is not None:
        return instead
    raise ConfigurationError(
        f"the values of {stream.name!r} are {codec!r}, which Spark cannot decode: --codecs {stream.name}=bytes keeps the bytes"
    )


@cache
def _program_codec(graph: str, topic: str, field: str | None) -> tuple[Any, Any]:
    """Return the codec of a stream's values, and the codec of their columns, or of one of them."""
    edges = (edge for group in groups_of(load(graph), graph) for edge in group.inputs)
    codec: Any = next(edge.stream.value for edge in edges if edge.stream.name == topic)
    return codec, Avro(codec.columns if field is None else alone(codec.columns, field), Plain())


def row(graph: str, topic: str, data: bytes | None, field: str | None) -> tuple[bytes | None, str | None]:
    """Return the columns of a value of a program's stream as Avro, or one of them; or the reason why there are none.

    Raises:
        RetryLater: A registry does not answer. The task fails, and Spark repeats it.
    """
    codec, columns = _program_codec(graph, topic, field)
    try:
        if data is None:
            return None, "no value"
        found = codec.row(codec.decode(bytes(data)))
        return columns.encode(found if field is None else {field: found[field]}), None
    except (DeserializationError, SerializationError) as error:
        return None, error.message
