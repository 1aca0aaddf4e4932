"""Codecs that decode the values of a topic to a column: Avro, JSON, text, or the unchanged bytes."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.avro.functions import from_avro

from exactavro import alone
from streamtable_spark.transforms.avro import AvroCodec

PlainKind = Literal["json", "string", "bytes"]
PLAIN_KINDS: Final[tuple[PlainKind, ...]] = ("json", "string", "bytes")


@dataclass(frozen=True)
class PlainCodec:
    """Values without a schema. JSON and text stay text, and are checked; bytes stay as they are."""

    kind: PlainKind

    def decode(self, frame: DataFrame) -> DataFrame:
        """Add `decoded` and `reason`; see `AvroCodec.decode`."""
        text = fn.col("value").cast("string")
        reason = fn.when(fn.col("value").isNull(), fn.lit("no value"))
        if self.kind != "bytes":
            reason = reason.when(~fn.is_valid_utf8(text), fn.lit("not UTF-8"))
        if self.kind == "json":
            # Spark ignores text behind a value. In an array and in an object none can be there that fits both.
            inside = [fn.concat(fn.lit(a), text, fn.lit(b)) for a, b in (("[", "]"), ('{"a":', "}"))]
            right = [fn.try_parse_json(each).isNotNull() for each in inside]
            reason = reason.when(~(right[0] & right[1]), fn.lit("not JSON"))
        decoded = fn.col("value") if self.kind == "bytes" else text
        frame = frame.withColumn("reason", reason)
        return frame.withColumn("decoded", fn.when(fn.col("reason").isNull(), decoded))

    @property
    def unions(self) -> dict[str, list[str]]:
        """As `AvroCodec.unions`: there are none."""
        return {}

    def has(self, field: str) -> bool:
        """Return whether an event can have this field."""
        return self.kind == "json" and bool(field)

    def field(self, name: str) -> Column:
        """Return a field of the events in the column `event`, as text; null where there is none."""
        return fn.get_json_object("event", f"$.{name}")

    def peek(self, name: str) -> Column:
        """Return a field of the bytes in the column `value`, as text; null where there is none."""
        return fn.get_json_object(fn.col("value").cast("string"), f"$.{name}")


@dataclass(frozen=True)
class ProgramCodec(AvroCodec):
    """Values that a program's own codec decodes, in Spark's Python workers, to the columns that it says they have.

    Attributes:
        graph: MODULE:NAME of the program, where the workers find it too.
        topic: The name of the stream.
        row: Returns the row of a value, or one of its fields; or the reason why there is none. See `graphs.row`.
    """

    graph: str = ""
    topic: str = ""
    row: Callable[..., tuple[Any, str | None]] = lambda *_: (None, None)

    def decode(self, frame: DataFrame) -> DataFrame:
        """Add `decoded` and `reason`; see `AvroCodec.decode`."""
        rows = {"_raw": fn.col("value"), "_made": self._rows(None)}
        found = super().decode(frame.withColumns(rows).withColumn("value", fn.col("_made.row")))
        reason = fn.coalesce(fn.col("_made.fault"), fn.col("reason"))
        return found.withColumns({"reason": reason, "value": fn.col("_raw")}).drop("_raw", "_made")

    def peek(self, name: str) -> Column:
        """Return a field of the bytes in the column `value`; null where these cannot be decoded."""
        # Of the type that it has in events: the hash of an id depends on that.
        return from_avro(self._rows(name)["row"], json.dumps(alone(json.loads(self.reader), name)))[name]

    def _rows(self, field: str | None) -> Column:
        row, graph, topic = self.row, self.graph, self.topic
        return fn.udf(lambda data: row(graph, topic, data, field), "row binary, fault string")("value")


Codec = AvroCodec | PlainCodec
