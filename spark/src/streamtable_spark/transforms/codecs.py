"""How the values of a topic become a column: Avro, JSON, text, or the bytes as they are."""

import json
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from contracts.schema import RecordSchema
from streamtable_spark.transforms.avro import Framing, decode, peek, plain, single_object

PlainKind = Literal["json", "string", "bytes"]
PLAIN_KINDS: Final[tuple[PlainKind, ...]] = ("json", "string", "bytes")


@dataclass(frozen=True)
class AvroCodec:
    """Avro values.

    Attributes:
        reader: JSON text of the schema to which all values are resolved.
        older: JSON texts of the other schemas that values may be written with.
        framed: Whether the single-object encoding names the writer's schema in front of each body; if not, the values are
            bodies alone, all written with `reader`.
    """

    reader: str
    older: tuple[str, ...] = ()
    framed: bool = True

    @classmethod
    def released(cls, record: RecordSchema[Any]) -> Self:
        """Every version of a record that was ever released, read as the present one."""
        return cls(record.schema, record.history)

    def framing(self) -> Framing:
        """Return how each value names its writer's schema; needs a session."""
        return single_object(self.reader, self.older) if self.framed else plain(self.reader)

    def decode(self, frame: DataFrame) -> DataFrame:
        """Add `decoded` and `reason`; see `avro.decode`."""
        return decode(frame, self.framing())

    def has(self, field: str) -> bool:
        """Return whether an event has this field."""
        tree = json.loads(self.reader)
        return isinstance(tree, dict) and any(each["name"] == field for each in tree.get("fields", ()))

    def field(self, event: str, name: str) -> Column:
        """Return a field of the events in a column."""
        return fn.col(event).getField(name)

    def peek(self, value: str, name: str) -> Column:
        """Return a field of the values in a column of bytes without a look at the rest; see `avro.peek`."""
        return peek(fn.col(value), self.framing(), name)


@dataclass(frozen=True)
class PlainCodec:
    """Values without a schema. JSON and text stay text, and are checked; bytes stay as they are."""

    kind: PlainKind

    def decode(self, frame: DataFrame) -> DataFrame:
        """Add `decoded` and `reason`; see `avro.decode`."""
        text = fn.col("value").cast("string")
        reason = fn.when(fn.col("value").isNull(), fn.lit("no value"))
        if self.kind != "bytes":
            reason = reason.when(~fn.is_valid_utf8(text), fn.lit("not UTF-8"))
        if self.kind == "json":
            reason = reason.when(fn.try_parse_json(text).isNull(), fn.lit("not JSON"))
        decoded = fn.col("value") if self.kind == "bytes" else text
        frame = frame.withColumn("reason", reason)
        return frame.withColumn("decoded", fn.when(fn.col("reason").isNull(), decoded))

    def has(self, field: str) -> bool:
        """Return whether an event can have this field."""
        return self.kind == "json" and bool(field)

    def field(self, event: str, name: str) -> Column:
        """Return a field of the events in a column, as text; null where there is none."""
        return fn.get_json_object(event, f"$.{name}")

    def peek(self, value: str, name: str) -> Column:
        """Return a field of the values in a column of bytes, as text; null where there is none."""
        return fn.get_json_object(fn.col(value).cast("string"), f"$.{name}")


Codec = AvroCodec | PlainCodec
