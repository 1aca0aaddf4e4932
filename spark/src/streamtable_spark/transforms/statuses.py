"""Statuses of users, in batch. The later one of two updates by their own time counts; at the same time, the greater id."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

from streamtable_spark.transforms.event_time import timely

ORDER = ("at", "id", "status")


def history(updates: DataFrame) -> DataFrame:
    """Compute each status of a user and how long it was valid.

    Args:
        updates: The silver table of user-status-updates.

    Returns:
        `user_id`, `status`, `at`, `id`, and `until`: when the next one began, null for the present one. Milliseconds
        since 1970.
    """
    return _lasting(_said(updates))


def add_history(kept: DataFrame, updates: DataFrame) -> DataFrame:
    """Compute the rows of `history` from the existing rows of the users with new updates, and these updates."""
    return _lasting(kept.select("user_id", *ORDER).unionByName(_said(updates).select("user_id", *ORDER)))


def _said(updates: DataFrame) -> DataFrame:
    said = timely(updates).where(~fn.col("repeat"))
    return said.select(fn.col("key").alias("user_id"), "event.status", "event.at", "event.id")


def _lasting(said: DataFrame) -> DataFrame:
    next_at = fn.lead("at").over(Window.partitionBy("user_id").orderBy(*ORDER))
    return said.dropDuplicates(["user_id", *ORDER]).withColumn("until", next_at)
