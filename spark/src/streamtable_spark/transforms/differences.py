"""Two versions of a table, key by key."""

from collections.abc import Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

MISSING, EXTRA, DIFFERENT, UNREADABLE = "missing", "extra", "different", "unreadable"
OVERWRITTEN = "overwritten"


def differences(expected: DataFrame, live: DataFrame, compared: Sequence[str]) -> DataFrame:
    """Return the keys whose rows differ.

    Args:
        expected: `partition`, `key`, `row` (a struct with the field `value`), each key of a partition once.
        live: The rows of the table: the same columns, and `value` (bytes); `row` is null where they could not be decoded.
        compared: The fields of the rows' values that must agree; empty to compare whole values.

    Returns:
        `partition`, `key`, `difference` (missing: expected and not there; extra: there and not expected; different;
        unreadable: the live bytes are no row), `expected` and `live` (the rows as JSON, null where there is none),
        `live_value` (bytes).
    """
    left = expected.select("partition", "key", fn.col("row").alias("expected"))
    right = live.select("partition", "key", fn.col("row").alias("live"), fn.col("value").alias("live_value"))
    joined = left.join(right, ["partition", "key"], "full_outer")
    kind = (
        fn.when(fn.col("live_value").isNull(), MISSING)
        .when(fn.col("live").isNull(), UNREADABLE)
        .when(fn.col("expected").isNull(), EXTRA)
        .when(~_same(compared), DIFFERENT)
    )
    found = joined.withColumn("difference", kind).where("difference IS NOT NULL")
    rows = [fn.to_json(side).alias(side) for side in ("expected", "live")]
    return found.select("partition", "key", "difference", *rows, "live_value")


def overwritten(found: DataFrame, later: DataFrame) -> DataFrame:
    """Mark the rows that seem to be missing only because compaction has removed them since.

    Args:
        found: The result of `differences`, with the `table` that each row belongs to.
        later: The `table`, `partition` and `key` of changelog records after those that were compared.

    Returns:
        The columns of `found`, with the kind overwritten instead of missing where the key was written again: its
        earlier row, if there was one, is gone.
    """
    again = later.select("table", "partition", "key").distinct().withColumn("again", fn.lit(True))
    kind = fn.when((fn.col("difference") == MISSING) & fn.col("again"), OVERWRITTEN)
    joined = found.join(again, ["table", "partition", "key"], "left")
    return joined.withColumn("difference", fn.coalesce(kind, "difference")).drop("again")


def _same(compared: Sequence[str]) -> Column:
    expected, live = fn.col("expected")["value"], fn.col("live")["value"]
    if not compared:
        return expected.eqNullSafe(live)
    return reduce(and_, [expected[field].eqNullSafe(live[field]) for field in compared])
