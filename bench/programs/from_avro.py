"""Clicks decoded by Spark's own `from_avro` alone: the single-object header is compared with the schema's, and cut off."""

from pyspark.sql import Column
from pyspark.sql import functions as fn
from pyspark.sql.avro.functions import from_avro

from contracts.records import USER_CLICK
from exactavro import Schema

HEADER = b"\xc3\x01" + Schema.load(USER_CLICK.schema).fingerprint
TO_THE_END = 2**31 - 1


def event(value: Column, mode: str) -> Column:
    """Return the decoded value; null if it has another header.

    Args:
        value: The bytes.
        mode: The mode of `from_avro` for a body that it cannot decode: `PERMISSIVE` makes a row of nulls, `FAILFAST` an error.
    """
    mine = fn.substring(value, 1, len(HEADER)) == fn.lit(HEADER)
    body = fn.when(mine, fn.substring(value, len(HEADER) + 1, TO_THE_END))
    return from_avro(body, USER_CLICK.schema, {"mode": mode})
