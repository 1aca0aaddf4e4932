"""The contents of a lake: its topics, their codecs, and the results that are kept. From arguments, or from Python."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from pyspark.sql import DataFrame

from exactavro import Schema, Unusable
from streamtable import Avro, String, errors
from streamtable_spark.errors import ConfigurationError
from streamtable_spark.graphs import codec_of, groups_of, load
from streamtable_spark.transforms.avro import AvroCodec
from streamtable_spark.transforms.codecs import PLAIN_KINDS, Codec, PlainCodec

CODECS: Final = "avro:FILE, avro-plain:FILE, json, string or bytes"
HORIZON_DAYS: Final = 7
_HORIZON: Final = f"days that events with one id may be apart to be found out as repeated ({HORIZON_DAYS})"


@dataclass(frozen=True)
class Topic:
    """A topic to read.

    Attributes:
        name: The name of its tables.
        kafka: The name of the topic in Kafka.
        codec: The codec of its values.
        id: The field that holds the id of an event. The later one of two events with the same id is a repeat. None:
            no event repeats another.
        text_keys: Whether keys are text, which each record has; otherwise they are kept as bytes, or null.
        horizon_days: The maximum distance in days of two events with the same id to be recognised as a repeat across batches.
    """

    name: str
    kafka: str
    codec: Codec
    id: str | None = None
    text_keys: bool = True
    horizon_days: int = HORIZON_DAYS

    def __post_init__(self) -> None:
        if self.horizon_days < 0:
            raise ConfigurationError(f"--horizon {self.name}={self.horizon_days}: days are needed, 0 or more")
        if self.id is not None and not self.codec.has(self.id):
            raise ConfigurationError(
                f"the events of {self.name} have no field {self.id!r}: give --ids {self.name}=FIELD, with its name in the values"
            )


@dataclass(frozen=True)
class Result:
    """A table of gold, computed from silver.

    Attributes:
        topics: The names of the topics whose silver tables it is computed from, in the order of the arguments of `make`.
        make: Computes its rows.
        keys: The columns that identify a row, the record's key first, where each row comes from the records of one key of a
            single topic: then only the rows of keys with new records are computed again. Empty: the whole table is.
        add: With `keys`: computes the same rows from those that are kept of these keys, and new records of silver. Without it
            all records of these keys are read again.
    """

    topics: tuple[str, ...]
    make: Callable[..., DataFrame]
    keys: tuple[str, ...] = ()
    add: Callable[[DataFrame, DataFrame], DataFrame] | None = None


@dataclass(frozen=True)
class Contents:
    """The contents of a lake.

    Attributes:
        topics: The topics that are read.
        results: The results that are kept in gold, by the names of their tables.
    """

    topics: tuple[Topic, ...]
    results: Mapping[str, Result] = field(default_factory=dict)


def topics_of(names: Sequence[str], known: Sequence[Topic]) -> tuple[Topic, ...]:
    """Choose topics by arguments of the form NAME or NAME=TOPIC, several separated by commas; without any, all.

    Args:
        names: The arguments. TOPIC is the name in Kafka, if it differs.
        known: The topics to choose from.

    Raises:
        ConfigurationError: A name is unknown or given twice.
    """
    of_name = {topic.name: topic for topic in known}
    found = []
    for text in _split(names) or of_name:
        name, renamed, kafka = text.partition("=")
        if name not in of_name or (renamed and not kafka):
            raise ConfigurationError(
                f"--topics {text!r}: NAME or NAME=TOPIC is needed, with a NAME of --codecs or --graph: {', '.join(of_name) or 'none'}"
            )
        found.append(replace(of_name[name], kafka=kafka or of_name[name].kafka))
    for values in ([each.name for each in found], [each.kafka for each in found]):
        if twice := {value for value in values if values.count(value) > 1}:
            raise ConfigurationError(f"--topics {', '.join(sorted(twice))} is named more than once")
    return tuple(found)


def topic_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the contents of a lake; `contents_of` reads them."""
    for name, metavar, text in (
        ("--topics", "NAME[=TOPIC],...", "topics to read (all that --codecs and --graph name)"),
        ("--codecs", "NAME=CODEC,...", f"how values are read: {CODECS}; FILE+OLDER+... with older schemas"),
        ("--ids", "NAME=FIELD,...", "the field that holds the id of an event; without it none repeats"),
        ("--horizon", "NAME=DAYS,...", _HORIZON),
        ("--byte-keys", "NAME,...", "topics whose keys may be missing, or any bytes; others are text"),
        ("--graph", "MODULE:NAME", "a group, a flow, or the contents of a lake, whose topics are read"),
    ):
        parser.add_argument(name, action="append", default=[], metavar=metavar, help=text)


def contents_of(found: argparse.Namespace) -> Contents:
    """Return the contents that the arguments describe.

    Raises:
        ConfigurationError: An argument is wrong, or names nothing to read.
    """
    of_name: dict[str, Topic] = {}
    results: dict[str, Result] = {}
    ids = _pairs("--ids", found.ids)
    codecs = {name: _codec(name, text) for name, text in _pairs("--codecs", found.codecs).items()}
    for text in found.graph:
        named = load(text)
        declared = named if isinstance(named, Contents) else Contents(input_topics(named, text, ids, codecs))
        with_id = {name for name, topic in of_name.items() if topic.id is not None}
        of_name |= {each.name: each for each in declared.topics if each.id or each.name not in with_id}
        results |= declared.results
    for name, codec in codecs.items():
        known = of_name.get(name) or Topic(name, name, codec)
        of_name[name] = replace(known, codec=codec, id=ids.get(name, _id_in(codec, known.id)))

    def change(argument: str, name: str, **fields: Any) -> None:
        if name not in of_name:
            raise ConfigurationError(
                f"{argument} {name}: neither --codecs nor --graph says how this topic is read"
            )
        of_name[name] = replace(of_name[name], **fields)

    for name, event_id in ids.items():
        change("--ids", name, id=event_id)
    for name, days in _pairs("--horizon", found.horizon).items():
        if not days.isascii() or not days.isdecimal():
            raise ConfigurationError(f"--horizon {name}={days}: a number of days is needed")
        change("--horizon", name, horizon_days=int(days))
    for name in _split(found.byte_keys):
        change("--byte-keys", name, text_keys=False)
    topics = topics_of(found.topics, tuple(of_name.values()))
    if not topics:
        raise ConfigurationError("nothing to read: give --topics with --codecs, or --graph MODULE:NAME")
    return Contents(topics, results)


def input_topics(
    program: Any,
    text: str,
    ids: Mapping[str, str] = MappingProxyType({}),
    codecs: Mapping[str, Codec] = MappingProxyType({}),
) -> tuple[Topic, ...]:
    """Return the inputs of a program's groups, without the topics between its groups and without loops.

    The id of an event is the field that tells a group which events are repeated (`Once`).

    Args:
        program: The program; see `groups_of`.
        text: The argument that names it.
        ids: The fields of ids, by topic, where the values have other names for them than the groups: a type with aliases.
        codecs: The codecs of topics whose own Spark has no counterpart of.

    Raises:
        ConfigurationError: It is no program, a codec is one that Spark has no counterpart of, or the values have no such field.
    """
    groups = groups_of(program, text)
    own = {edge.stream.name for group in groups for edge in group.outputs}
    own |= {group.loop.stream.name for group in groups if group.loop is not None}
    found: dict[str, Topic] = {}
    for edge in (edge for group in groups for edge in group.inputs):
        stream = edge.stream
        if stream.name in own:
            continue
        by, codec = getattr(edge.once, "by", None), codec_of(stream, text, codecs.get(stream.name))
        event_id = ids.get(stream.name, _id_in(codec, by))
        if stream.name not in found or event_id is not None:
            texts = isinstance(stream.key, String)
            found[stream.name] = Topic(stream.name, stream.name, codec, event_id, texts)
    return tuple(found.values())


def _id_in(codec: Codec, field: Any) -> str | None:
    """Return the field of the id that a program names, if there is one in such values: text and bytes have no fields."""
    without = isinstance(codec, PlainCodec) and codec.kind != "json"
    return field if isinstance(field, str) and not without else None


def _codec(name: str, text: str) -> Codec:
    kind, _, files = text.partition(":")
    for plain in PLAIN_KINDS:
        if text == plain:
            return PlainCodec(plain)
    if kind not in {"avro", "avro-plain"} or not files:
        raise ConfigurationError(f"--codecs {name}={text}: {CODECS} is needed")
    reader, *older = (_schema(name, path) for path in files.split("+"))
    if older and kind == "avro-plain":
        raise ConfigurationError(
            f"--codecs {name}={text}: plain values do not say which version they are of: give one schema"
        )
    try:
        Avro(reader, history=older)
    except errors.ConfigurationError as error:
        raise ConfigurationError(f"--codecs {name}={text}: {error}") from error
    return AvroCodec(reader, tuple(older), framed=kind == "avro")


def _schema(name: str, path: str) -> str:
    try:
        return Schema.load(Path(path).read_text("utf-8")).text
    except (OSError, ValueError, Unusable) as error:
        raise ConfigurationError(f"--codecs {name}: the schema {path} cannot be read ({error})") from error


def _pairs(argument: str, texts: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in _split(texts):
        name, _, value = text.partition("=")
        if not name or not value:
            raise ConfigurationError(f"{argument} {text!r}: NAME=... is needed")
        pairs[name] = value
    return pairs


def _split(texts: Sequence[str]) -> list[str]:
    return [part.strip() for text in texts for part in text.split(",")]
