"""Decode the Avro bytes of a topic to columns, and encode them; a value that cannot be decoded gets a reason, not an error.

All of it happens inside of Spark's own Java. Errors that Spark's Avro functions let pass are caught here. They give nulls for a
body that is cut short, ignore bytes behind it, and pass on text that is not UTF-8. So

- where a value has but one encoding (see `has_one_encoding`), it is encoded again and must give the same bytes;
- any other is decoded as the first field of a record of its own. The second is a checksum of the body, which is put
  behind it: it is null after decoding has failed, and unchanged only if the value ends where the body ends;
- texts must be UTF-8.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any, Final, Self

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.avro.functions import from_avro, to_avro

from contracts.schema import RecordSchema
from exactavro import Schema, alone, can_be_null, has_one_encoding, kind, parts, unions
from streamtable_spark.errors import ConfigurationError

SINGLE_OBJECT: Final = b"\xc3\x01"
TO_THE_END: Final = (1 << 31) - 1
DIGITS_MAX: Final = 38
CHECK: Final = {"name": "check", "type": {"type": "fixed", "name": "Check", "size": 16}}


@dataclass(frozen=True)
class AvroCodec:
    """Avro values.

    Attributes:
        reader: JSON text of the reader schema: all values are resolved to it.
        older: JSON texts of the other schemas that values may be written with.
        framed: Whether the single-object encoding names the writer's schema in front of each body, as the services write: C3
            01 and its fingerprint. If not, the values are bodies alone, all written with `reader`.

    Raises:
        ConfigurationError: Spark has no columns for a type of a schema.
    """

    reader: str
    older: tuple[str, ...] = ()
    framed: bool = True

    def __post_init__(self) -> None:
        for text in (self.reader, *self.older):
            _refuse_unknown(Schema.load(text).tree)

    @classmethod
    def released(cls, record: RecordSchema[Any]) -> Self:
        """Return a codec that reads every released version of a record as the current one."""
        return cls(record.schema, record.history)

    @property
    def writers(self) -> dict[bytes, str]:
        """The JSON text of each writer's schema, by the prefix of the bodies written with it."""
        return {self.prefix(text): text for text in (*self.older, self.reader)}

    def prefix(self, schema: str) -> bytes:
        """Return the prefix of the bodies of a schema."""
        return SINGLE_OBJECT + Schema.load(schema).fingerprint if self.framed else b""

    def decode(self, frame: DataFrame) -> DataFrame:
        """Decode the column `value`, bytes, or add the reason why it cannot be decoded.

        Returns:
            The frame and two columns: `decoded`, of the reader schema's type, null where there is a reason; `reason`, text,
            null where the value was decoded.
        """
        columns = frame.columns
        data = fn.col("value")
        writers, magic = self.writers, SINGLE_OBJECT if self.framed else b""
        size = len(next(iter(writers)))
        frame = frame.withColumns(
            {
                "_prefix": fn.substring(data, 1, size),
                "_body": fn.when(data.isNotNull(), fn.substring(data, size + 1, TO_THE_END)),
            }
        )
        steps = [_Writer(n, *writer, self.reader) for n, writer in enumerate(writers.items())]
        if any(step.sealed or step.differs for step in steps):
            frame = frame.withColumn("_check", fn.unhex(fn.md5("_body")))
        frame = frame.withColumns({step.read: step.as_written() for step in steps})
        frame = frame.withColumns({step.fault: step.verdict() for step in steps})
        frame = frame.withColumns({step.resolved: step.resolve() for step in steps if step.differs})
        known = fn.col("_prefix").isin(*writers)
        reason = (
            fn.when(data.isNull(), fn.lit("no value"))
            .when(fn.length(data) < size, fn.lit(f"shorter than the {size} bytes in front of a body"))
            .when(
                fn.substring(data, 1, len(magic)) != fn.lit(magic),
                fn.lit(f"does not begin with {magic.hex(' ').upper()}"),
            )
            .when(~known, fn.concat(fn.lit("schema not known: "), fn.hex("_prefix")))
            .otherwise(fn.coalesce(*[fn.col(step.fault) for step in steps]))
        )
        # Spark moves a condition to the input's side, with all that it depends on: a filter on the reason would decode each
        # value seven times. Not so where a column seems to depend on more than the row.
        here = fn.spark_partition_id() >= 0
        return frame.select(
            *[fn.col(f"`{name}`") for name in columns],
            fn.when(here, fn.coalesce(*[step.value() for step in steps])).alias("decoded"),
            fn.coalesce(reason, *[step.unresolved() for step in steps if step.differs]).alias("reason"),
        )

    @property
    def unions(self) -> dict[str, list[str]]:
        """The branches of each union with several, which are columns in this order, by its path; only types with a name have one."""
        return unions(Schema.load(self.reader).tree)

    def encode(self, value: Column) -> Column:
        """Return the bytes of values that are not null, of the reader's type; fields of records are found by their names."""
        body = to_avro(fn.struct(value.alias("value")), _wrapped(self.reader))
        return fn.concat(fn.lit(self.prefix(self.reader)), body)

    def has(self, field: str) -> bool:
        """Return whether an event has this field."""
        tree = json.loads(self.reader)
        return isinstance(tree, dict) and any(each["name"] == field for each in tree.get("fields", ()))

    def field(self, name: str) -> Column:
        """Return a field of the events in the column `event`."""
        return fn.col("event").getField(name)

    def peek(self, name: str) -> Column:
        """Return a field of the bytes in the column `value`, where these can be decoded; else the result is undefined.

        Nothing else of a value is kept or checked, so it costs a fraction of decoding it.
        """
        reader = json.dumps(alone(Schema.load(self.reader).tree, name))
        writers, options = self.writers, {"mode": "PERMISSIVE", "avroSchema": reader}
        size, value = len(next(iter(writers))), fn.col("value")
        body = fn.substring(value, size + 1, TO_THE_END)
        found = [
            from_avro(fn.when(fn.substring(value, 1, size) == fn.lit(prefix), body), text, options)[name]
            for prefix, text in writers.items()
        ]
        return fn.coalesce(*found)


class _Writer:
    """The columns of the bodies that were written with one schema; null for all other bodies.

    Attributes:
        sealed: Whether a checksum follows a body. Where a value has a single encoding, comparing bytes does the same at less
            cost.
        differs: Whether the schema is another one than the reader's.
    """

    def __init__(self, number: int, prefix: bytes, schema: str, reader: str) -> None:
        self.read, self.fault, self.resolved = f"_read{number}", f"_fault{number}", f"_resolved{number}"
        self._mine = fn.col("_body").isNotNull() & (fn.col("_prefix") == fn.lit(prefix))
        self._schema, self._reader = schema, reader
        self._tree: Any = Schema.load(schema).tree  # types are defined wherever they are used
        # Without a checksum null is a failure, so it must not be a value.
        self.sealed = not has_one_encoding(self._tree) or can_be_null(self._tree)
        self.differs = json.loads(schema) != json.loads(reader)

    def as_written(self) -> Column:
        body = fn.concat("_body", "_check") if self.sealed else fn.col("_body")
        wrapped = _wrapped(self._schema, CHECK) if self.sealed else _wrapped(self._schema)
        return from_avro(fn.when(self._mine, body), wrapped, {"mode": "PERMISSIVE"})

    def verdict(self) -> Column:
        """Return the reason why a body cannot be decoded; null if it can."""
        read, body = fn.col(self.read), fn.col("_body")
        failed = read["check"].isNull() if self.sealed else read["value"].isNull()
        reason = fn.when(failed, fn.lit("cut short, or malformed"))
        left_over = fn.lit("bytes are left over behind the value")
        if self.sealed:
            reason = reason.when(read["check"] != fn.col("_check"), left_over)
        if has_one_encoding(self._tree):
            again = to_avro(fn.struct(read["value"].alias("value")), _wrapped(self._schema))
            other = fn.lit("not encoded as Avro encodes such a value")
            reason = reason.when(
                again != body, fn.when(fn.startswith(body, again), left_over).otherwise(other)
            )
        texts = _valid_texts(read["value"], self._tree)
        if texts is not None:
            reason = reason.when(~fn.coalesce(texts, fn.lit(True)), fn.lit("holds text that is not UTF-8"))
        return fn.when(self._mine, reason)

    def resolve(self) -> Column:
        """Return the value in the reader's schema, and the checksum; null for bodies that cannot be decoded."""
        options = {"mode": "PERMISSIVE", "avroSchema": _wrapped(self._reader, CHECK)}
        body = fn.when(self._right(), fn.concat("_body", "_check"))
        return from_avro(body, _wrapped(self._schema, CHECK), options)

    def value(self) -> Column:
        """Return the value in the reader's schema."""
        if self.differs:
            return fn.when(self.unresolved().isNull(), fn.col(self.resolved)["value"])
        return fn.when(self._right(), fn.col(self.read)["value"])

    def unresolved(self) -> Column:
        """Return the reason why a decoded body does not resolve to the reader's schema; null if it does."""
        lost = fn.col(self.resolved)["check"].isNull()
        # Bytes may become text.
        texts = _valid_texts(fn.col(self.resolved)["value"], Schema.load(self._reader).tree)
        if texts is not None and any(kind(node) == "bytes" for _, node in parts(self._tree)):
            lost |= ~texts
        return fn.when(self._right() & lost, fn.lit("does not resolve to the reader's schema"))

    def _right(self) -> Column:
        return self._mine & fn.col(self.fault).isNull()


def _wrapped(schema: str, *more: Mapping[str, Any]) -> str:
    """Return the schema of a record with this field, and more: its encoding is its fields' encodings in order."""
    fields: Sequence[Mapping[str, Any]] = [{"name": "value", "type": json.loads(schema)}, *more]
    return json.dumps({"type": "record", "name": "Wrapped", "fields": fields})


def _refuse_unknown(tree: Any) -> None:
    for path, node in parts(tree):
        named = node if isinstance(node, dict) else {}
        names, why = [entry["name"].lower() for entry in named.get("fields", ())], None
        if len(set(names)) < len(names):
            why = "has fields whose names differ only in case"
        if named.get("logicalType") == "decimal" and named["precision"] > DIGITS_MAX:
            why = f"is a decimal of {named['precision']} digits, and Spark's have {DIGITS_MAX}"
        if why is not None:
            raise ConfigurationError(
                f"Avro: {path or 'the value'} {why}. Spark has no column for it: read the topic as bytes"
            )


def _valid_texts(value: Column, tree: Any) -> Column | None:
    """Return whether all texts in a value are UTF-8; None if it has none. Null counts as valid."""
    if isinstance(tree, list):
        # Spark has one column for null and one other branch, and else one field for each.
        branches = [branch for branch in tree if branch != "null"]
        several = [value[f"member{number}"] for number in range(len(branches))]
        return _every(map(_valid_texts, [value] if len(branches) == 1 else several, branches))
    kind = tree["type"] if isinstance(tree, dict) else tree
    if kind == "string":
        return fn.is_valid_utf8(value)
    if kind == "record":
        return _every(_valid_texts(value[entry["name"]], entry["type"]) for entry in tree["fields"])
    if kind == "array":
        return _all_items(value, tree["items"])
    if kind == "map":
        keys = fn.forall(fn.map_keys(value), fn.is_valid_utf8)
        return _every([keys, _all_items(fn.map_values(value), tree["values"])])
    return _valid_texts(value, kind) if isinstance(kind, list | dict) else None


def _all_items(value: Column, tree: Any) -> Column:
    def valid(item: Column) -> Column:
        texts = _valid_texts(item, tree)
        return fn.lit(True) if texts is None else fn.coalesce(texts, fn.lit(True))

    return fn.forall(value, valid)


def _every(checks: Iterable[Column | None]) -> Column | None:
    found = [fn.coalesce(check, fn.lit(True)) for check in checks if check is not None]
    return reduce(and_, found) if found else None
