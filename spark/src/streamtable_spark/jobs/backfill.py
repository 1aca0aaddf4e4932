"""Recompute the silver rows of some days, and all results, from bronze: after a schema was added or a transform was corrected.

Kafka is not needed. Running it again after a crash is safe; readers see each table before or after the change, never between.
Only batches that all tables have are touched, so the ETL may run at the same time where the storage supports concurrent
writers; on a local disk one waits for the other, see `writer_lock`.
"""

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial

from pyspark.sql import functions as fn

from streamtable_spark.errors import ConfigurationError
from streamtable_spark.jobs import gold
from streamtable_spark.jobs.checkpoint import last_finished
from streamtable_spark.jobs.files import Files
from streamtable_spark.jobs.formats import DeltaTables, undisturbed
from streamtable_spark.jobs.job_args import ended, job_parser, session_of
from streamtable_spark.jobs.lake import BRONZE, QUARANTINE, Lake, delta_tables
from streamtable_spark.jobs.progress import Progress
from streamtable_spark.jobs.run_report import reported_run
from streamtable_spark.jobs.silver import check_columns, decoded, silver
from streamtable_spark.jobs.topics import Contents, Topic, contents_of, topic_arguments
from streamtable_spark.jobs.writer_lock import writer_lock
from streamtable_spark.transforms import layers

STAGES = ("decode", "compute results")


@dataclass(frozen=True)
class DateRange:
    """The days from `start` up to, but not including, `end`, in UTC.

    Attributes:
        start: The first day.
        end: The day after the last one.
    """

    start: date
    end: date

    def __post_init__(self) -> None:
        if self.start >= self.end:
            raise ConfigurationError(
                f"--from {self.start} --to {self.end}: the end is the day after the last one, so it must be later than the start; for that one day: --to {self.start + timedelta(1)}"
            )

    @property
    def condition(self) -> str:
        """Return the SQL condition for a column `day`."""
        return f"day >= DATE'{self.start}' AND day < DATE'{self.end}'"


def day(text: str, argument: str) -> date:
    """Parse a date from an argument.

    Args:
        text: YYYY-MM-DD.
        argument: The name of the argument, for the message.

    Raises:
        ConfigurationError: The text is not a date.
    """
    try:
        if str(found := date.fromisoformat(text)) != text:
            raise ValueError("it has another form")
    except ValueError as error:
        raise ConfigurationError(
            f"{argument} {text!r}: a day such as 2026-07-31 is needed, in UTC ({error})"
        ) from error
    return found


def backfill(lake: Lake, contents: Contents, days: DateRange, progress: Progress) -> dict[str, int]:
    """Decode bronze of these days again, and replace silver and quarantine of these days with the result.

    Args:
        lake: An existing lake with Delta tables.
        contents: The topics whose records are decoded, and the results that are computed again.
        days: The days to recompute, by the records' timestamps.
        progress: Receives the progress of the run; see `STAGES`.

    Returns:
        The number of records written, by `<topic>` and `<topic> quarantined`.

    Raises:
        ConfigurationError: See `delta_tables`.
        RetryLater: Another job keeps writing to the same rows.
    """
    tables = delta_tables(lake)
    progress.stage(STAGES[0])
    for topic in contents.topics:
        check_columns(tables, topic, lake.known())
    finished = partial(last_finished, Files(lake.spark), lake.checkpoint)
    upto, counts = finished(), dict[str, int]()
    for topic in contents.topics:
        counts |= undisturbed(partial(_topic, tables, topic, days, upto))
    progress.stage(STAGES[1], **counts)
    undisturbed(lambda: gold.refresh(tables, contents.results, upto=finished()))
    progress.done(summary=f"{days.start} to {days.end}, recomputed", **counts)
    return counts


def _topic(tables: DeltaTables, topic: Topic, days: DateRange, finished: int) -> dict[str, int]:
    name, where = f"silver/{topic.name}", f"{days.condition} AND batch <= {finished}"
    raw = tables.read(BRONZE).where((fn.col("topic") == topic.kafka) & fn.expr(where))
    earlier = None
    if topic.id is not None and tables.exists(name):
        # All rows of the same batches, and those of other batches within the horizon: a later one may have an earlier day.
        batches = raw.agg(fn.min("batch").alias("first"), fn.max("batch").alias("last")).collect()[0]
        start, end = (fn.lit(f"{each}").cast("date") for each in (days.start, days.end))
        near = fn.col("day").between(
            fn.date_sub(start, topic.horizon_days), fn.date_add(end, topic.horizon_days)
        )
        earlier = tables.read(name).where(f"batch <= {finished} AND NOT ({days.condition})")
        earlier = earlier.where(near | fn.col("batch").between(*batches))
    with ExitStack() as kept:
        tables.replace(name, silver(topic, raw, earlier, kept), where)
        wrong = layers.quarantine(decoded(topic, raw)).persist()
        kept.callback(wrong.unpersist)
        bad = wrong.count()
        if bad or tables.exists(QUARANTINE):
            tables.replace(QUARANTINE, wrong, f"topic = '{topic.kafka}' AND {where}")
    right = tables.read(name).where(where).count()
    return {topic.name: right, f"{topic.name} quarantined": bad}


def work(argv: Sequence[str]) -> int:
    """Run the job with these arguments, and return its exit status."""
    about = "Recompute silver of some days from bronze."
    parser = job_parser("backfill", about, kafka=False, lake="folder of the lake")
    parser.add_argument("--from", required=True, dest="start", metavar="DAY", help="first day, in UTC")
    parser.add_argument("--to", required=True, dest="end", metavar="DAY", help="the day after the last one")
    topic_arguments(parser)
    found = parser.parse_args(argv)
    contents, days = contents_of(found), DateRange(day(found.start, "--from"), day(found.end, "--to"))
    spark = session_of(found)()
    with writer_lock(found.lake), reported_run(found, STAGES) as progress:
        counts = backfill(Lake(spark, found.lake), contents, days, progress)
    print(json.dumps(counts))  # noqa: T201 - what the program answers
    return 0


if __name__ == "__main__":
    sys.exit(ended(work, sys.argv[1:]))
