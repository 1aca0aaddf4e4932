"""Clicks, in batch."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from streamtable_spark.transforms.layers import day_of


def per_day(clicks: DataFrame) -> DataFrame:
    """Count the clicks of each user on each day, by the clicks' own time; a repeated event counts once.

    Args:
        clicks: The silver table of user-clicks.

    Returns:
        `user_id`, `day` (in UTC; null for times that no calendar has), `clicks`.
    """
    first = clicks.where(~fn.col("repeat"))
    by = (fn.col("key").alias("user_id"), day_of(fn.col("event.at")).alias("day"))
    return first.groupBy(*by).agg(fn.count("*").alias("clicks"))


def add_per_day(kept: DataFrame, clicks: DataFrame) -> DataFrame:
    """Compute the rows of `per_day` from the existing rows and new clicks."""
    both = kept.select("user_id", "day", "clicks").unionByName(per_day(clicks))
    return both.groupBy("user_id", "day").agg(fn.sum("clicks").alias("clicks"))
