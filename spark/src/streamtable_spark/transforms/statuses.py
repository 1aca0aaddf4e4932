"""What users say, in batch. Of two updates the later one by its own time counts; of one time, that with the greater id."""

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
    """Compute the rows of `history` from those so far of the users of new updates, and these updates."""
    return _lasting(kept.select("user_id", *ORDER).unionByName(_said(updates).select("user_id", *ORDER)))


def latest(updates: DataFrame, clicks: DataFrame) -> DataFrame:
    """Compute each user's latest status with the clicks at that time.

    The table of user-status joins the count that a processor has met; which one that is depends on how fast records
    came. Here it is a matter of the events alone: the clicks up to the status's own time.

    Args:
        updates: The silver table of user-status-updates.
        clicks: The silver table of user-clicks.

    Returns:
        `user_id`, `status`, `at`, `id`, `clicks` (0: none).
    """
    last = fn.max(fn.struct(*[fn.col(f"event.{name}").alias(name) for name in ORDER]))
    statuses = timely(updates).groupBy(fn.col("key").alias("user_id")).agg(last.alias("last"))
    statuses = statuses.select("user_id", "last.status", "last.at", "last.id")
    clicked = clicks.where(~fn.col("repeat")).select(
        fn.col("key").alias("user_id"), fn.col("event.at").alias("clicked_at")
    )
    counted = (
        clicked.join(statuses.select("user_id", "at"), "user_id")
        .where("clicked_at <= at")
        .groupBy("user_id")
        .agg(fn.count("*").alias("clicks"))
    )
    return statuses.join(counted, "user_id", "left").select(
        "user_id", "status", "at", "id", fn.coalesce("clicks", fn.lit(0).cast("bigint")).alias("clicks")
    )


def _said(updates: DataFrame) -> DataFrame:
    said = timely(updates).where(~fn.col("repeat"))
    return said.select(fn.col("key").alias("user_id"), "event.status", "event.at", "event.id")


def _lasting(said: DataFrame) -> DataFrame:
    next_at = fn.lead("at").over(Window.partitionBy("user_id").orderBy(*ORDER))
    return said.dropDuplicates(["user_id", *ORDER]).withColumn("until", next_at)
