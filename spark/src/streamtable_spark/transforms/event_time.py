"""Which events claim a time that they cannot have: the rule of `contracts.event_time`, in batch."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from contracts.event_time import MAX_AHEAD_SECONDS


def timely(silver: DataFrame, max_ahead_seconds: float = MAX_AHEAD_SECONDS) -> DataFrame:
    """Leave out events that processors send to the dead letters because of their time.

    Args:
        silver: With `timestamp`, the record's own, and `event.at` in milliseconds since 1970.
        max_ahead_seconds: How far an event may be ahead of its record, as the services are set.
    """
    latest = fn.unix_millis("timestamp") + fn.lit(round(max_ahead_seconds * 1000))
    return silver.where(fn.col("event.at").between(fn.lit(0), latest))
