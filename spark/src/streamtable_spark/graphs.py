"""Programs that arguments name, `module:NAME` as for web servers, and their groups, flows and codecs."""

import sys
from collections.abc import Mapping
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

from streamtable import Avro, Bytes, Group, Json, Plain, SingleObject, Stream, String, Typed
from streamtable.flow import Flow
from streamtable.graph.group import groups_in
from streamtable_spark.errors import ConfigurationError
from streamtable_spark.transforms.avro import AvroCodec
from streamtable_spark.transforms.codecs import Codec, PlainCodec


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
            f"--graph {text}: {type(error).__name__}: {error}. The module has to be importable here, and where tasks run: "
            "install its package, or give it to spark-submit with --py-files"
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


def codec_of(stream: Stream[Any, Any]) -> Codec:
    """Return Spark's counterpart of the codec of a stream's values.

    Raises:
        ConfigurationError: There is none.
    """
    codec = stream.value
    if isinstance(codec, String):
        return PlainCodec("string")
    if isinstance(codec, Json | Typed):
        return PlainCodec("json")
    if isinstance(codec, Bytes):
        return PlainCodec("bytes")
    if isinstance(codec, Avro) and isinstance(codec.framing, SingleObject | Plain):
        framed = isinstance(codec.framing, SingleObject)
        return AvroCodec(codec.schema.text, codec.older if framed else (), framed=framed)
    raise ConfigurationError(
        f"the values of {stream.name!r} are {codec!r}, which Spark cannot decode here: give --codecs {stream.name}=bytes to "
        "keep them as they are"
    )
