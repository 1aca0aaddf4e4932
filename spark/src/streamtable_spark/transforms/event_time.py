"""Events with an impossible event time: the rule of `contracts.event_time`, in batch."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from contracts.event_time import MAX_AHEAD_SECONDS


def timely(silver: DataFrame) -> DataFrame:
    """Drop events that processors send to the dead letters because of their time.

    Args:
        silver: The rows, with the record's `timestamp`, and `event.at` in milliseconds since 1970.
    """
    latest = fn.unix_millis("timestamp") + fn.lit(round(MAX_AHEAD_SECONDS * 1000))
    return silver.where(fn.col("event.at").between(fn.lit(0), latest))
