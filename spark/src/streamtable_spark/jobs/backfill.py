"""Recompute silver of some days, and all results, from bronze: after a schema was added or a transform was corrected.

Kafka is not needed. Running it again after a crash is safe; readers see each table as before or as after, never between.
Only batches that all tables have are touched, so the ETL may run at the same time where the storage supports concurrent
writers; on a local disk one waits for the other, see `writer_lock`.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from pyspark.sql import functions as fn

from streamtable_spark.jobs import gold
from streamtable_spark.jobs.checkpoint import last_finished
from streamtable_spark.jobs.date_range import DateRange, day
from streamtable_spark.jobs.files import Files
from streamtable_spark.jobs.formats import DeltaTables, undisturbed
from streamtable_spark.jobs.job_args import ended, kafka_argument, local_of, place_arguments
from streamtable_spark.jobs.lake import BRONZE, QUARANTINE, Lake, delta_tables, lake_folder
from streamtable_spark.jobs.progress import Progress
from streamtable_spark.jobs.run_report import reported_run, run_report_arguments
from streamtable_spark.jobs.topics import Contents, Topic, contents_of, topic_arguments
from streamtable_spark.jobs.writer_lock import writer_lock
from streamtable_spark.session import connect
from streamtable_spark.transforms import layers

STAGES = ("decode", "compute results")


def backfill(lake: Lake, contents: Contents, days: DateRange, progress: Progress) -> dict[str, int]:
    """Decode bronze of these days again, and replace silver and quarantine of these days with the result.

    Args:
        lake: An existing lake with Delta tables.
        contents: The topics whose records are decoded, and the results that are computed again.
        days: The days to recompute, by the records' timestamps.
        progress: Receives the progress of the run; see `STAGES`.

    Returns:
        How many records came out, by `<topic>` and `<topic> quarantined`.

    Raises:
        ConfigurationError: See `delta_tables`.
        RetryLater: Another job keeps writing to the same rows.
    """
    tables = delta_tables(lake)
    progress.stage(STAGES[0])
    where = f"{days.condition} AND batch <= {last_finished(Files(lake.spark), lake.checkpoint)}"
    counts: dict[str, int] = {}
    for topic in contents.topics:
        counts |= undisturbed(partial(_topic, tables, topic, days, where))
    progress.stage(STAGES[1], **counts)
    undisturbed(lambda: gold.refresh(tables, contents.results, whole=True))
    progress.done(summary=f"{days.start} to {days.end}, recomputed", **counts)
    return counts


def _topic(tables: DeltaTables, topic: Topic, days: DateRange, where: str) -> dict[str, int]:
    of_topic = (fn.col("topic") == topic.kafka) & fn.expr(where)
    raw = tables.read(BRONZE).where(of_topic)
    decoded = layers.read(raw, topic.codec, text_keys=topic.text_keys).persist()
    name, event_id = f"silver/{topic.name}", topic.event_id
    try:
        earlier = None
        if event_id is not None and tables.exists(name):
            before = (fn.col("day") < days.start) & (
                fn.col("day") >= days.start - timedelta(topic.horizon_days)
            )
            earlier = tables.read(name).where(before)
        repeated = None
        if event_id is not None:
            repeated = layers.repeated(layers.ids(decoded, event_id), earlier)
        tables.replace(name, layers.silver(decoded, repeated, event_id, text_keys=topic.text_keys), where)
        wrong = layers.quarantine(decoded)
        if tables.exists(QUARANTINE):
            tables.replace(QUARANTINE, wrong, f"topic = '{topic.kafka}' AND {where}")
        bad = wrong.count()
        return {topic.name: decoded.count() - bad, f"{topic.name} quarantined": bad}
    finally:
        decoded.unpersist()


def work(argv: Sequence[str]) -> int:
    """The job as a program."""
    parser = argparse.ArgumentParser(
        prog="backfill", description="Recompute silver of some days from bronze.", allow_abbrev=False
    )
    kafka_argument(parser, required=False)
    run_report_arguments(parser)
    parser.add_argument("--lake", required=True, metavar="FOLDER")
    parser.add_argument("--from", required=True, dest="start", metavar="DAY", help="first day, in UTC")
    parser.add_argument("--to", required=True, dest="end", metavar="DAY", help="the day after the last one")
    topic_arguments(parser)
    place_arguments(parser)
    found = parser.parse_args(argv)
    folder, contents = lake_folder(found.lake), contents_of(found)
    days = DateRange(day(found.start, "--from"), day(found.end, "--to"))
    spark = connect("backfill", local_of(found))
    with writer_lock(folder), reported_run(found, "backfill", STAGES, lake=folder) as progress:
        counts = backfill(Lake(spark, folder), contents, days, progress)
    print(json.dumps(counts))  # noqa: T201 - what the program answers
    return 0


if __name__ == "__main__":
    sys.exit(ended(work, sys.argv[1:]))
