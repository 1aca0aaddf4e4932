"""Groups and flows of the streaming library, as the jobs see them: the topics that they read, and how."""

from collections.abc import Mapping
from typing import Any

from streamtable import Avro, Bytes, Group, Json, Plain, SingleObject, Stream, String
from streamtable.graph import groups_in
from streamtable_spark.errors import ConfigurationError
from streamtable_spark.jobs.topics import Topic
from streamtable_spark.transforms.codecs import AvroCodec, Codec, PlainCodec


def groups_of(program: Any, text: str) -> list[Group[Any, Any]]:
    """Return the groups of a program: a group, a flow, or several of them.

    Args:
        program: The program; several of them in a list, or by name.
        text: How an argument has named it.

    Raises:
        ConfigurationError: It is none.
    """
    several = list(program.values()) if isinstance(program, Mapping) else program
    several = several if isinstance(several, list | tuple) else [several]
    programs = [each for each in several if isinstance(each, Group) or hasattr(each, "groups")]
    if not programs:
        raise ConfigurationError(
            f"--graph {text} is a {type(program).__name__}: a Group, a Flow, or the Contents of a lake is needed"
        )
    return groups_in(programs)


def input_topics(program: Any, text: str) -> tuple[Topic, ...]:
    """Return the inputs of a program's groups, without what flows between its groups and loops.

    The id of an event is the field by which a group recognises repeated ones (`Once`).

    Raises:
        ConfigurationError: It is no program, or a codec is one that Spark has no counterpart of.
    """
    groups = groups_of(program, text)
    own = {edge.stream.name for group in groups for edge in group.outputs}
    own |= {group.loop.stream.name for group in groups if group.loop is not None}
    found: dict[str, Topic] = {}
    for edge in (edge for group in groups for edge in group.inputs):
        stream = edge.stream
        if stream.name in own:
            continue
        by = edge.once.by if edge.once is not None else None
        event_id = by if isinstance(by, str) else None
        if stream.name not in found or event_id is not None:
            found[stream.name] = Topic(
                stream.name, stream.name, codec_of(stream), event_id, isinstance(stream.key, String)
            )
    return tuple(found.values())


def codec_of(stream: Stream[Any, Any]) -> Codec:
    """Return Spark's counterpart of the codec of a stream's values.

    Raises:
        ConfigurationError: There is none.
    """
    codec = stream.value
    if isinstance(codec, String):
        return PlainCodec("string")
    if isinstance(codec, Json):
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
