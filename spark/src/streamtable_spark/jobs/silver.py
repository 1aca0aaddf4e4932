"""Decode the raw records of a topic to rows of silver, and mark those that repeat an earlier event."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from streamtable_spark.errors import ConfigurationError
from streamtable_spark.jobs.formats import DeltaTables, LakeTables
from streamtable_spark.jobs.lake import BRONZE, Origin
from streamtable_spark.jobs.topics import Topic
from streamtable_spark.transforms import layers

WIDER: Final = {("int", "bigint"), ("int", "double"), ("float", "double")}
"""The promotions of Avro that Delta knows as well."""


def check_columns(tables: LakeTables, topic: Topic, origin: Origin) -> None:
    """Check that a topic's rows fit into its table, if there is one. Where Delta can widen numbers, let it do so.

    Raises:
        ConfigurationError: The topic has another table, or a column has another type, because of another codec, schema or kind
            of keys.
    """
    if (table := origin.tables.get(topic.kafka, topic.name)) != topic.name:
        raise ConfigurationError(
            f"the rows of topic {topic.kafka} are in silver/{table}, not in silver/{topic.name}: give --topics {table}={topic.kafka}, or make a new lake"
        )
    name = f"silver/{topic.name}"
    if not tables.exists(name):
        return
    rows = layers.silver(decoded(topic, tables.read(BRONZE)), None, text_keys=topic.text_keys)
    for path, branches in origin.unions.get(topic.kafka, {}).items():
        now = topic.codec.unions.get(path, branches)
        if now[: len(branches)] != branches:
            raise ConfigurationError(
                f"topic {topic.kafka}: event{path} has a column for each of {', '.join(branches)} in {name}, and these arguments make them {', '.join(now)}: add new types of a union behind the others, or make a new lake"
            )
    changed = list(_changed(tables.read(name).schema, rows.schema))
    for column, old, new in changed:
        if (old, new) not in WIDER or not isinstance(tables, DeltaTables):
            raise ConfigurationError(
                f"topic {topic.kafka}: {column[1:]} is {old[:100]} in {name}, and these arguments make it {new[:100]}: give the codec, schema and kind of keys that the lake was made with, or make a new lake"
            )
        tables.widen(name)


def _changed(old: DataType, new: DataType, column: str = "") -> Iterator[tuple[str, str, str]]:
    """Return the columns and fields that both have with different types, with both types."""
    parts, others = _parts(old), _parts(new)
    both = [name for name in parts if name in others]
    # A union of two records has no field that one of them alone has.
    replaced = bool(parts and others) and "member0" not in {*parts, *others}
    if type(old) is not type(new) or (not both and old != new and not replaced):
        yield column, old.simpleString(), new.simpleString()
    for name in both:
        yield from _changed(parts[name], others[name], f"{column}.{name}")


def _parts(kind: DataType) -> dict[str, DataType]:
    if isinstance(kind, StructType):
        return {field.name: field.dataType for field in kind}
    if isinstance(kind, ArrayType):
        return {"element": kind.elementType}
    return {"value": kind.valueType} if isinstance(kind, MapType) else {}


def silver(topic: Topic, raw: DataFrame, earlier: DataFrame | None, kept: ExitStack) -> DataFrame:
    """Return the rows of the records that can be decoded; see `layers.silver`.

    Args:
        topic: The topic.
        raw: Its bronze records, each offset once.
        earlier: Other rows of silver; see `layers.repeated`.
        kept: Frames that are read more than once stay persisted until it is closed.
    """
    if topic.id is None:
        return layers.silver(decoded(topic, raw), None, text_keys=topic.text_keys)
    peeked, event_id = topic.codec.peek(topic.id), topic.codec.field(topic.id)

    def held(frame: DataFrame) -> DataFrame:
        kept.callback(frame.persist().unpersist)
        return frame

    repeats = None
    suspects = held(layers.suspects(raw, peeked, earlier))
    if suspects.count():
        few = layers.of_suspects(raw, peeked, suspects)
        repeats = held(
            layers.repeated(layers.ids(decoded(topic, few), event_id), earlier, topic.horizon_days)
        )
        repeats = repeats if repeats.count() else None
    return layers.silver(decoded(topic, raw), repeats, event_id, text_keys=topic.text_keys)


def decoded(topic: Topic, raw: DataFrame) -> DataFrame:
    """Decode bronze records of a topic; see `layers.read`."""
    return layers.read(raw, topic.codec, text_keys=topic.text_keys)
