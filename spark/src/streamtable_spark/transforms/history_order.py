"""Records of several topics in the order that a group without lag handles them in."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

ORDERED = ("task", "topic", "partition", "offset", "ms", "key", "value", "headers")


def in_order(
    records: DataFrame,
    first: Sequence[str],
    everywhere: Sequence[str],
    partitions: int,
    last: Sequence[str] = (),
) -> DataFrame:
    """Bring the records of each partition together, in order: by timestamp across topics, by offset in each.

    A record whose timestamp is lower than an earlier one in its topic is ordered by that earlier timestamp.

    Args:
        records: `topic`, `partition`, `offset`, `timestamp`, `key`, `value`, `headers`.
        first: The topics that come first where timestamps are equal.
        everywhere: The topics whose records go to all partitions.
        partitions: The number of partitions.
        last: The topics whose records come after all others, in this order among themselves.

    Returns:
        The columns `ORDERED`: the records of one `task`, a partition of the others, are together and in order.
    """
    ms = fn.coalesce(fn.unix_millis("timestamp"), fn.lit(-1))
    so_far = (
        Window.partitionBy("topic", "partition").orderBy("offset").rowsBetween(Window.unboundedPreceding, 0)
    )
    all_tasks = fn.sequence(fn.lit(0), fn.lit(partitions - 1))
    tasks = fn.when(fn.col("topic").isin(*everywhere), all_tasks) if everywhere else None
    own = fn.array("partition")
    topic = fn.col("topic")
    later = fn.when(topic.isin(*first), 0).otherwise(1)
    timed = records.withColumns({"ms": ms, "later": later, "last": topic.isin(*last)}).withColumn(
        "at", fn.max("ms").over(so_far)
    )
    found = timed.withColumn("task", fn.explode(own if tasks is None else tasks.otherwise(own)))
    order = ("task", "last", "at", "later", "topic", "partition", "offset")
    return found.repartition(partitions, "task").sortWithinPartitions(*order).select(*ORDERED)
