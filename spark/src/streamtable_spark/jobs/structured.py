"""Count clicks with Spark's own streaming, for users who have a Spark cluster anyway.

    python -m streamtable_spark.jobs.structured --bootstrap-servers HOST:PORT --output TOPIC --checkpoint FOLDER

The state is in the checkpoint, and a compacted topic gets each count that changes, as a group's table would. It is
written at least once: a batch that was interrupted writes its counts again, the same ones, before any later batch
does. Undecodable clicks are skipped; the ETL keeps them in its quarantine.
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from streamtable_spark.errors import ConfigurationError
from streamtable_spark.jobs.cluster import Cluster
from streamtable_spark.jobs.history import stream
from streamtable_spark.jobs.job_args import ended, job_parser, session_of
from streamtable_spark.jobs.kafka import Kafka
from streamtable_spark.jobs.progress import Progress
from streamtable_spark.jobs.run_report import reported_run
from streamtable_spark.transforms.tables import PLACE, TABLES, events, values

INPUT: Final = "user-clicks"
STAGES: Final = ("check the topics", "count clicks")
LOOK_S: Final = 10
RECORDS_MAX: Final = 1_000_000  # of a batch
_INTERVAL: Final = re.compile(r"[1-9][0-9]{0,5} (milliseconds|seconds|minutes)")


@dataclass(frozen=True)
class Streaming:
    """The settings of the streaming count.

    Attributes:
        bootstrap_servers: The addresses of the brokers, as Kafka clients take them.
        output: The compacted topic of counts, with the same number of partitions.
        checkpoint: The folder of offsets and state; with another one the count starts from the beginning.
        every: The time between two batches ("2 seconds"); None to read the records that are there now and stop.
    """

    bootstrap_servers: str
    output: str
    checkpoint: str
    every: str | None = None

    def __post_init__(self) -> None:
        if self.every is not None and not _INTERVAL.fullmatch(self.every):
            raise ConfigurationError(f"--every {self.every!r}: give a number and a unit, such as '2 seconds'")
        if self.output == INPUT:
            raise ConfigurationError(f"--output {self.output!r} is the topic of the clicks")


def counts(clicks: DataFrame) -> DataFrame:
    """Return the records of the table of counts: `partition`, `key`, `value`.

    Each id counts once, for as long as the checkpoint is kept: a stream has no window over all of its past, which the
    batch jobs use to forget ids after a day, and a watermark would drop late clicks.
    """
    table = TABLES["click-count"]
    read = events(clicks, table.inputs[INPUT]).where("event IS NOT NULL")
    first = read.select(*PLACE, fn.col("event.id").alias("id")).dropDuplicates(["partition", "id"])
    counted = first.groupBy(*PLACE).agg(fn.struct(fn.count("*").alias("value")).alias("row"))
    return values(counted, table)


def start(spark: SparkSession, streaming: Streaming) -> StreamingQuery:
    """Start the query from the checkpoint, or from the beginning if there is none."""
    clicks = stream(spark, streaming.bootstrap_servers, [INPUT], RECORDS_MAX).option("failOnDataLoss", True)
    writer = (
        counts(clicks.load())
        .select("key", "value", fn.col("partition").cast("int").alias("partition"))
        .writeStream.format("kafka")
        .outputMode("update")
        .options(**Kafka(streaming.bootstrap_servers).spark())
        .option("topic", streaming.output)
        .option("checkpointLocation", streaming.checkpoint)
    )
    every = streaming.every
    return (writer.trigger(processingTime=every) if every else writer.trigger(availableNow=True)).start()


def check(streaming: Streaming) -> None:
    """Raise `ConfigurationError` if a topic is missing, or the two have different numbers of partitions."""
    with Cluster(streaming.bootstrap_servers) as cluster:
        topics = cluster.topics([INPUT, streaming.output])
    there, here = topics[streaming.output].partitions, topics[INPUT].partitions
    if there != here:
        raise ConfigurationError(
            f"{streaming.output} has {there} partitions, and {INPUT} has {here}: readers look for a user in the partition that their clicks are in"
        )


def follow(query: StreamingQuery, progress: Progress) -> None:
    """Wait for the end of the query, and report the number of clicks that it has read."""
    read, last, is_over = 0, -1, False
    while not is_over:
        is_over = bool(query.awaitTermination(LOOK_S))
        batches = {each["batchId"]: each["numInputRows"] for each in query.recentProgress}
        read += sum(rows for batch, rows in batches.items() if batch > last)
        last = max([last, *batches])
        if read != progress.standing.records:
            progress.stage(STAGES[1], records=read)
    progress.done(summary=f"{read} clicks read", records=read)


def main(argv: Sequence[str]) -> int:
    """Run the job with these arguments, and return its exit status."""
    parser = job_parser("structured", "Count clicks with Spark's streaming.")
    add = parser.add_argument
    add("--output", required=True, metavar="TOPIC", help="compacted topic of the counts")
    add("--checkpoint", required=True, metavar="FOLDER", help="folder of the offsets and the state")
    add("--every", metavar="TIME", help="run continuously, with the time between batches ('2 seconds')")
    found = parser.parse_args(argv)
    streaming = Streaming(found.bootstrap_servers, found.output, found.checkpoint, found.every)
    session = session_of(found)
    found.group = streaming.output.removesuffix("-table")  # the group whose table the counts are
    with reported_run(found, STAGES) as progress:
        progress.stage(STAGES[0])
        check(streaming)
        progress.stage(STAGES[1])
        follow(start(session(), streaming), progress)
    return 0


if __name__ == "__main__":
    sys.exit(ended(main, sys.argv[1:]))
