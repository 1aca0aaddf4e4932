"""Updates of the results in the lake from silver."""

from collections.abc import Mapping
from contextlib import ExitStack

from pyspark.sql import functions as fn

from streamtable_spark.jobs.formats import DeltaTables, LakeTables
from streamtable_spark.jobs.topics import Result


def refresh(tables: LakeTables, results: Mapping[str, Result], *, upto: int | None = None) -> list[str]:
    """Update results. Safe to repeat. A result is skipped while one of its topics has no silver table.

    Args:
        tables: The tables of the lake.
        results: The results, by the names of their tables.
        upto: Recompute all results from all of silver, up to this batch, which all of its tables have. None: from what is
            new, and with Delta only for the keys of new records where a result declares its keys.

    Returns:
        The names of the tables that were written.
    """
    return [name for name, result in results.items() if _refresh(tables, f"gold/{name}", result, upto)]


def _refresh(tables: LakeTables, name: str, result: Result, whole_to: int | None) -> bool:
    sources = [f"silver/{topic}" for topic in result.topics]
    if not all(map(tables.exists, sources)):
        return False
    upto = max(map(tables.last_batch, sources)) if whole_to is None else whole_to
    since = tables.last_batch(name) if tables.exists(name) and whole_to is None else -1
    if since >= upto:
        return False
    # Later than `whole_to` is a batch that the ETL is adding, table by table.
    seen = fn.lit(True) if whole_to is None else fn.col("batch") <= whole_to
    silver = [tables.read(source).where(seen) for source in sources]
    batch = fn.lit(upto).cast("bigint")
    whole = result.make(*silver).withColumn("batch", batch)
    old = tables.read(name) if since >= 0 and result.keys else None
    # With other columns or types than the table has, all rows are made again. No table has a column of nulls alone.
    columns = {column: kind for column, kind in whole.dtypes if kind != "void"}
    if isinstance(tables, DeltaTables) and old is not None and dict(old.dtypes) == columns:
        (of_topic,) = silver
        new = of_topic.where(fn.col("batch") > since)
        # A record may have no key. `=` would not find its rows, and the upsert would: with a sum that lacks what it had before.
        touched = new.select(fn.col("key").alias("touched")).distinct()
        kept = old.join(touched, old[result.keys[0]].eqNullSafe(touched["touched"]), "left_semi")
        if result.add is None:
            records = of_topic.join(touched, of_topic["key"].eqNullSafe(touched["touched"]), "left_semi")
            rows = result.make(records)
        else:
            rows = result.add(kept, new)
        rows = rows.withColumn("batch", batch).select(*old.columns).persist()
        with ExitStack() as persisted:
            persisted.callback(rows.unpersist)
            if not rows.isEmpty():
                tables.upsert(name, rows, result.keys, kept)
                return True
            if kept.isEmpty():
                return False  # these batches change no row, and are read again with the next one
        # Without a new row nothing in the table would say that it has these batches.
    tables.overwrite(name, whole)
    return True
