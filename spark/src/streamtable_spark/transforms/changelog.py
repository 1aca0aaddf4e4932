"""The changelog of a group's table: the rows that it holds, the records that change it to others, and their digest.

Everywhere a row is (partition, key, value): a key belongs to the partition of its events, so rows of the same
key in two partitions are two rows, as for the processor.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

ROW = ["partition", "key", "value"]


def rows_held(records: DataFrame) -> DataFrame:
    """Return the rows after all these records: the last value of each key, unless that is null.

    Args:
        records: `partition`, `offset`, `key`, `value` (bytes).

    Returns:
        `partition`, `key`, `value`.
    """
    last = (
        records.where("key IS NOT NULL")
        .groupBy("partition", "key")
        .agg(fn.max_by("value", "offset").alias("value"))
    )
    return last.where("value IS NOT NULL")


def changes(target: DataFrame, held: DataFrame) -> DataFrame:
    """Return the records that bring a changelog from `held` to `target`: none for rows that stay as they are.

    Args:
        target: The rows to reach: `partition`, `key`, `value`, each key of a partition once.
        held: The rows that the changelog holds, with the same columns.

    Returns:
        `partition`, `key`, `value`; a null value deletes the key.
    """
    new = target.select(*ROW, fn.lit(True).alias("there"))
    old = held.select("partition", "key", fn.col("value").alias("old"))
    return (
        new.join(old, ["partition", "key"], "full_outer")
        .where("there IS NULL OR old IS NULL OR value <> old")
        .select(*ROW)
    )


def digests(rows: DataFrame) -> DataFrame:
    """Return the number of rows of each partition, and a digest of all their bytes that does not depend on their order.

    Args:
        rows: `partition`, `key`, `value`, each key of a partition once.

    Returns:
        `partition`, `rows`, `digest` (16 hexadecimal digits); partitions without rows are omitted.
    """
    each = fn.xxhash64(fn.length("key"), "key", "value")
    return rows.groupBy("partition").agg(
        fn.count("*").alias("rows"), fn.lower(fn.lpad(fn.hex(fn.bit_xor(each)), 16, "0")).alias("digest")
    )
