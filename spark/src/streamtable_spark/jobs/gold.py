"""Results that are kept in the lake, brought up to date with silver."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from streamtable_spark.jobs.formats import DeltaTables, ParquetTables, last_batch
from streamtable_spark.jobs.topics import CLICKS, FOLLOWS, TWEETS, UPDATES
from streamtable_spark.transforms import clicks, reach, statuses


@dataclass(frozen=True)
class Result:
    """A table of gold; all of its rows belong to a user, and come from that user's records alone.

    Attributes:
        topic: The topic whose silver the table is computed from.
        make: Computes rows with a column `user_id` from silver.
        keys: The columns that identify a row.
    """

    topic: str
    make: Callable[[DataFrame], DataFrame]
    keys: tuple[str, ...]


RESULTS: Final[Mapping[str, Result]] = {
    "clicks_per_day": Result(CLICKS, clicks.per_day, ("user_id", "day")),
    "status_history": Result(UPDATES, statuses.history, ("user_id", "at", "id", "status")),
}

REACH: Final = "reach"
"""Of each URL, exactly and by sketches; from all tweets and follows, since one of them can change that of many URLs."""


def refresh(tables: DeltaTables | ParquetTables, topics: Iterable[str], *, whole: bool = False) -> list[str]:
    """Bring results up to date. Safe to repeat.

    Args:
        tables: The tables of the lake.
        topics: The topics that the lake has.
        whole: Recompute all results from all of silver; else, with Delta, only for the users of new records.

    Returns:
        The names of the tables that were written.
    """
    have = set(topics)
    written = [
        name
        for name, result in RESULTS.items()
        if result.topic in have and _refresh(tables, f"gold/{name}", result, whole=whole)
    ]
    if {TWEETS, FOLLOWS} <= have and _reach(tables, f"gold/{REACH}", whole=whole):
        written.append(REACH)
    return written


def _refresh(tables: DeltaTables | ParquetTables, name: str, result: Result, *, whole: bool) -> bool:
    source = f"silver/{result.topic}"
    if not tables.exists(source):
        return False
    silver = tables.read(source)
    upto = last_batch(silver)
    if isinstance(tables, ParquetTables) or whole or not tables.exists(name):
        rows = result.make(silver)
        tables.overwrite(name, rows.withColumn("batch", fn.lit(upto).cast("bigint")))
        return True
    since = last_batch(tables.read(name))
    if since >= upto:
        return False
    touched = silver.where(fn.col("batch") > since).select("key").distinct()
    rows = result.make(silver.join(touched, "key", "left_semi"))
    tables.upsert(name, rows.withColumn("batch", fn.lit(upto).cast("bigint")), result.keys)
    return True


def _reach(tables: DeltaTables | ParquetTables, name: str, *, whole: bool) -> bool:
    sources = [f"silver/{topic}" for topic in (TWEETS, FOLLOWS)]
    if not all(tables.exists(source) for source in sources):
        return False
    tweets, follows = (tables.read(source) for source in sources)
    upto = max(last_batch(tweets), last_batch(follows))
    if not whole and tables.exists(name) and last_batch(tables.read(name)) >= upto:
        return False
    rows = reach.compared(reach.tweeted(tweets), reach.followers(follows))
    tables.overwrite(name, rows.withColumn("batch", fn.lit(upto).cast("bigint")))
    return True
