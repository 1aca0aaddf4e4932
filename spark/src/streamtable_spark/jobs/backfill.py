"""Silver of some days, and all results, made anew from bronze: after a schema was added or a fault in a transform mended.

Kafka is not needed. Run again after a crash it does the same again; readers see each table before or after, never between.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from datetime import timedelta

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from streamtable_spark.errors import ConfigurationError, RetryLater
from streamtable_spark.jobs import gold
from streamtable_spark.jobs.days import Days, day
from streamtable_spark.jobs.etl import REPEATS_DAYS
from streamtable_spark.jobs.lake import BRONZE, QUARANTINE, DeltaTables, Lake, lake_folder
from streamtable_spark.jobs.progress import Progress
from streamtable_spark.jobs.running import ended
from streamtable_spark.jobs.topics import Topic, topics_of
from streamtable_spark.session import Local, connect
from streamtable_spark.transforms import layers

STAGES = ("decode", "compute results")


def delta_tables(spark: SparkSession, folder: str) -> DeltaTables:
    """The tables of a lake that is there.

    Raises:
        ConfigurationError: there is none, or it has no Delta tables.
    """
    lake = Lake(spark, folder)
    origin = lake.origin()
    if origin is None:
        raise ConfigurationError(f"there is no lake at {folder}: `etl` makes one")
    tables = lake.tables(origin)
    if not isinstance(tables, DeltaTables):
        raise ConfigurationError(
            f"{folder} has plain {origin.format} tables, which cannot be changed in place: make a new lake with `etl`"
        )
    return tables


def backfill(tables: DeltaTables, topics: Sequence[Topic], days: Days, progress: Progress) -> dict[str, int]:
    """Decode bronze of these days again, and put what comes out in the place of silver and quarantine of these days.

    Args:
        tables: of the lake.
        topics: whose records.
        days: by the records' timestamps.
        progress: is told how far it is; see `STAGES`.

    Returns:
        How many records came out, by `<topic>` and `<topic> quarantined`.

    Raises:
        RetryLater: another job has written to the same rows meanwhile.
    """
    progress.stage(STAGES[0])
    counts: dict[str, int] = {}
    try:
        for topic in topics:
            counts |= _topic(tables, topic, days)
        progress.stage(STAGES[1], **counts)
        gold.refresh(tables, [topic.name for topic in topics], whole=True)
    except PySparkException as error:
        if "DELTA_CONCURRENT" in str(error):
            raise RetryLater("another job has written to the same rows meanwhile: run this again") from error
        raise
    progress.done(**counts)
    return counts


def _topic(tables: DeltaTables, topic: Topic, days: Days) -> dict[str, int]:
    of_topic = (fn.col("topic") == topic.kafka) & fn.expr(days.condition)
    decoded = layers.read(tables.read(BRONZE).where(of_topic), topic.framing()).persist()
    name = f"silver/{topic.name}"
    try:
        earlier = None
        if tables.exists(name):
            before = (fn.col("day") < days.start) & (fn.col("day") >= days.start - timedelta(REPEATS_DAYS))
            earlier = tables.read(name).where(before)
        tables.replace(name, layers.silver(decoded, earlier), days.condition)
        wrong = layers.quarantine(decoded)
        if tables.exists(QUARANTINE):
            tables.replace(QUARANTINE, wrong, f"topic = '{topic.kafka}' AND {days.condition}")
        bad = wrong.count()
        return {topic.name: decoded.count() - bad, f"{topic.name} quarantined": bad}
    finally:
        decoded.unpersist()


def work(argv: Sequence[str]) -> int:
    """The job as a program."""
    parser = argparse.ArgumentParser(
        prog="backfill", description="Silver of some days, made anew from bronze.", allow_abbrev=False
    )
    parser.add_argument("--lake", required=True, metavar="FOLDER")
    parser.add_argument("--from", required=True, dest="start", metavar="DAY", help="first day, in UTC")
    parser.add_argument("--to", required=True, dest="end", metavar="DAY", help="the day after the last one")
    parser.add_argument(
        "--topic", action="append", default=[], metavar="NAME[=TOPIC]", help="all that are known"
    )
    parser.add_argument("--cores", type=int, default=2, help="tasks at once, where Spark runs here (2)")
    parser.add_argument("--memory", default="1g", help="heap of Spark, where it runs here (1g)")
    found = parser.parse_args(argv)
    folder, topics = lake_folder(found.lake), topics_of(found.topic)
    days = Days(day(found.start, "--from"), day(found.end, "--to"))
    spark = connect("backfill", Local(cores=found.cores, memory=found.memory))
    progress = Progress(STAGES, sys.stderr, time.monotonic)
    print(json.dumps(backfill(delta_tables(spark, folder), topics, days, progress)))  # noqa: T201 - what the program answers
    return 0


if __name__ == "__main__":
    sys.exit(ended(work, sys.argv[1:]))
