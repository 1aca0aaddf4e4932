"""Updates of the results in the lake from silver."""

from collections.abc import Mapping

from pyspark.sql import functions as fn

from streamtable_spark.jobs.formats import DeltaTables, LakeTables
from streamtable_spark.jobs.topics import Result


def refresh(tables: LakeTables, results: Mapping[str, Result], *, whole: bool = False) -> list[str]:
    """Update results. Safe to repeat. A result is skipped while one of its topics has no silver table.

    Args:
        tables: The tables of the lake.
        results: The results, by the names of their tables.
        whole: Recompute all results from all of silver; else, with Delta, only for the keys of new records where a result
            declares its keys.

    Returns:
        The names of the tables that were written.
    """
    return [name for name, result in results.items() if _refresh(tables, f"gold/{name}", result, whole=whole)]


def _refresh(tables: LakeTables, name: str, result: Result, *, whole: bool) -> bool:
    sources = [f"silver/{topic}" for topic in result.topics]
    if not all(map(tables.exists, sources)):
        return False
    upto = max(map(tables.last_batch, sources))
    since = tables.last_batch(name) if tables.exists(name) and not whole else -1
    if since >= upto:
        return False
    silver = [tables.read(source) for source in sources]
    batch = fn.lit(upto).cast("bigint")
    if isinstance(tables, DeltaTables) and since >= 0 and result.keys:
        (of_topic,) = silver
        new = of_topic.where(fn.col("batch") > since)
        # A record may have no key. `=` would not find its rows, and the upsert would: with a sum that lacks what it had before.
        touched = new.select(fn.col("key").alias("touched")).distinct()
        if result.add is None:
            rows = result.make(
                of_topic.join(touched, of_topic["key"].eqNullSafe(touched["touched"]), "left_semi")
            )
        else:
            kept = tables.read(name)
            rows = result.add(
                kept.join(touched, kept[result.keys[0]].eqNullSafe(touched["touched"]), "left_semi"), new
            )
        tables.upsert(name, rows.withColumn("batch", batch), result.keys)
    else:
        tables.overwrite(name, result.make(*silver).withColumn("batch", batch))
    return True
