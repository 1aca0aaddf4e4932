"""Read all new records of the topics into the lake, then stop. Each record is written exactly once, also across kills.

Spark plans a batch (its start and end offsets, in the checkpoint) before it reads it, and plans the same one again
after a crash. Each table takes a batch once, so some tables may already have it. Kafka is read once, to bronze;
silver is made from that. Changes of the tables by another job meanwhile, such as compaction, make a step fail at worst,
and it is retried.
"""

import json
import sys
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import date
from functools import reduce
from operator import or_

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from streamtable_spark.errors import ConfigurationError, InputLost, OtherLake, SparkJobError
from streamtable_spark.jobs import gold
from streamtable_spark.jobs.checkpoint import Read, check_kept, check_planned, last_finished, read_so_far
from streamtable_spark.jobs.cluster import Cluster
from streamtable_spark.jobs.files import Files
from streamtable_spark.jobs.formats import LakeTables, Reached, undisturbed
from streamtable_spark.jobs.history import stream
from streamtable_spark.jobs.job_args import ended, job_parser, session_of
from streamtable_spark.jobs.lake import BRONZE, NO_RENAME, QUARANTINE, Lake, Origin
from streamtable_spark.jobs.positions import by_place, spans_to
from streamtable_spark.jobs.progress import Progress
from streamtable_spark.jobs.run_report import reported_run
from streamtable_spark.jobs.silver import check_columns, decoded, silver
from streamtable_spark.jobs.topics import Contents, Topic, contents_of, topic_arguments
from streamtable_spark.jobs.writer_lock import writer_lock
from streamtable_spark.transforms import layers

STAGES = ("check Kafka and the lake", "read topics", "compute results")
BATCH_STEPS = ("planned", "bronze written", "repeats searched", "silver written", "batch written")
"""The steps of each batch, once each, and "repeats searched" once for each topic."""
STEPS = (*BATCH_STEPS, "batches read", "results written")
"""The steps after which a run calls `reached`, for tests and the benchmark."""
PARTITIONS_MAX = 1_000_000
"""More than any table has."""
DATA_LOSS = ("KAFKA_DATA_LOSS", "OffsetOutOfRange", "data may have been")


@dataclass(frozen=True)
class Settings:
    """The settings of a run.

    Attributes:
        bootstrap_servers: The addresses of the brokers, as Kafka clients take them.
        lake: The folder of the lake.
        contents: The topics and results of the lake.
        format: The table format of a new lake: delta or parquet.
        records_max: The most offsets that one batch reads.
        allow_missing: Continue even if retention has deleted records that were not read.
    """

    bootstrap_servers: str
    lake: str
    contents: Contents
    format: str = "delta"
    records_max: int = 2_000_000
    allow_missing: bool = False

    def __post_init__(self) -> None:
        if self.records_max < 1:
            raise ConfigurationError(f"--batch {self.records_max}: at least 1 record")
        if self.format == "parquet" and self.lake.startswith(NO_RENAME):
            raise ConfigurationError(
                f"{self.lake}: a batch of plain Parquet is written by renaming, which an object store cannot do in one step: make a lake of Delta tables there (--format delta)"
            )


class Etl:
    """One run.

    Args:
        spark: The Spark session.
        settings: The settings of the run.
        progress: Receives the progress of the run; see `STAGES`.
        reached: Called after each step, one of `STEPS`; see `Reached`.
    """

    def __init__(
        self, spark: SparkSession, settings: Settings, progress: Progress, reached: Reached = lambda _: None
    ) -> None:
        self._spark, self._settings, self._progress, self._reached = spark, settings, progress, reached
        self._lake = Lake(spark, settings.lake)
        names = [topic.name for topic in settings.contents.topics]
        self._counts = Counter(
            dict.fromkeys(("batches", *names, *(f"{name} quarantined" for name in names)), 0)
        )
        self._begun = -1  # the last batch that an earlier run has written to bronze

    def run(self, name: str) -> dict[str, int]:
        """Run the ETL once.

        Args:
            name: A unique name for the lake, used if there is no lake yet.

        Returns:
            The number of `records` read, in all and by `<topic>` and `<topic> quarantined`, and the number of `batches`.

        Raises:
            ConfigurationError: A topic does not exist.
            InputLost: Kafka no longer has all records that were not read yet.
            OtherLake: The folder is another lake, or is damaged.
        """
        self._progress.stage(STAGES[0])
        origin = self._checked(name)
        tables = self._lake.tables(origin)
        self._progress.stage(STAGES[1])
        self._read(tables)
        self._reached("batches read")
        self._progress.stage(STAGES[2])
        undisturbed(lambda: gold.refresh(tables, self._settings.contents.results))
        self._reached("results written")
        summary = f"{self._records()} records in {self._counts['batches']} batches"
        self._progress.done(summary=summary, records=self._records(), **self._counts)
        return {"records": self._records(), **self._counts}

    def _checked(self, name: str) -> Origin:
        settings = self._settings
        names = [topic.kafka for topic in settings.contents.topics]
        with Cluster(settings.bootstrap_servers) as cluster:
            starts, ends = cluster.starts(names), cluster.ends(names)
            ids = {topic: each.topic_id for topic, each in cluster.topics(names).items()}
        known = self._lake.origin() or Origin(name, settings.format, {})
        if known.format != settings.format:
            raise OtherLake(f"{settings.lake} holds {known.format} tables: run with --format {known.format}")
        read = self._read_so_far(known)
        if others := sorted((known.topics.keys() | read.keys()) - ids.keys()):
            raise ConfigurationError(
                f"the lake {settings.lake} also reads {', '.join(others)}: name it too, or make a new lake without it"
            )
        for topic in names:
            if known.topics.get(topic, ids[topic]) != ids[topic]:
                raise InputLost(
                    f"topic {topic} was deleted and created again: its id was {known.topics[topic]} and is {ids[topic]}. {sum(read.get(topic, {}).values())} offsets of the earlier one were read, and later ones are lost. Make a new lake"
                )
        # Spark begins a topic or partition that it has not read yet at its first record only if that has offset 0.
        begun = {name: dict.fromkeys(starts[name], 0) | read.get(name, {}) for name in names if read}
        gone = check_kept(begun, starts, ends, allow=settings.allow_missing)
        # Kept before anything is read: the end of the records that were read does not show them.
        lost = [[*place, span.start, span.end] for place, span in gone.items()]
        missing = [*known.missing, *(each for each in lost if each not in known.missing)]
        for each in settings.contents.topics:
            check_columns(self._lake.tables(known), each, known)
        # Also those that this version of a schema does not have: silver keeps their columns.
        unions = {
            topic.kafka: {**known.unions.get(topic.kafka, {}), **topic.codec.unions}
            for topic in settings.contents.topics
        }
        now = replace(
            known,
            topics={**known.topics, **ids},
            missing=missing,
            tables={topic.kafka: topic.name for topic in settings.contents.topics},
            unions=unions,
        )
        if now != known:
            self._lake.declare(now)
        begins = {topic: {**starts[topic], **read.get(topic, {})} for topic in names}
        self._progress.reads(spans_to(ends, begins))
        return now

    def _read_so_far(self, origin: Origin) -> Read:
        files, checkpoint = Files(self._spark), self._lake.checkpoint
        read, tables = read_so_far(files, checkpoint), self._lake.tables(origin)
        finished = last_finished(files, checkpoint)
        if tables.exists(BRONZE):
            if read is None:
                raise OtherLake(
                    f"{checkpoint} is gone, and the tables hold records, which would come twice. Restore it, or make a new lake"
                )
            self._begun = written = tables.last_batch(BRONZE)
            if written > finished + 1:
                raise OtherLake(
                    f"{checkpoint} is older than the tables: it ends with batch {finished}, and they hold batch {written}. Restore a later one"
                )
            had = tables.read(BRONZE).where(fn.col("batch") <= finished)
            for topic in sorted(origin.topics.keys() - read.keys()):
                if not had.where(fn.col("topic") == topic).isEmpty():
                    raise OtherLake(
                        f"batch {finished} was read without {topic}, whose records would come twice. Make a new lake"
                    )
            check_planned(files, checkpoint, read, written)
        elif finished >= 0:
            raise OtherLake(
                f"{tables.path(BRONZE)} is gone, and {checkpoint} ends with batch {finished}. Restore the table, or make a new lake"
            )
        return read or {}

    def _read(self, tables: LakeTables) -> None:
        settings = self._settings
        topics = [topic.kafka for topic in settings.contents.topics]
        source = stream(self._spark, settings.bootstrap_servers, topics, settings.records_max)
        source = source.option("failOnDataLoss", not settings.allow_missing).option("includeHeaders", True)
        failed: list[SparkJobError] = []

        def take(records: DataFrame, batch: int) -> None:
            try:
                undisturbed(lambda: self._take(tables, records, batch))
            except SparkJobError as error:
                failed.append(error)
                raise

        query = (
            source.load()
            .writeStream.queryName("etl")
            .option("checkpointLocation", self._lake.checkpoint)
            .trigger(availableNow=True)
            .foreachBatch(take)
            .start()
        )
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if failed:
                raise failed[0] from error
            if any(word in str(error) for word in DATA_LOSS):
                raise InputLost(
                    f"records were deleted while they were read: {str(error)[:300]}. Run it again for the numbers"
                ) from error
            raise
        finally:
            query.stop()

    def _take(self, tables: LakeTables, records: DataFrame, batch: int) -> None:
        """Write one batch into all tables; called again with the same records after a crash."""
        self._reached("planned")
        tables.append(BRONZE, layers.bronze(records, batch), batch)
        self._reached("bronze written")
        wrong, counts = [], Counter({"batches": 1})
        # Spark writes the number into the program that it generates. A program ends at `coalesce`, which here merges nothing:
        # so the longer one after it, which decodes, equals the previous batch's, and Java has compiled it already.
        raw = tables.read(BRONZE).where(fn.col("batch") == batch).coalesce(PARTITIONS_MAX)
        have: dict[str, dict[date, int]] = defaultdict(dict)
        # Lakes have days from before they were made printable.
        for row in raw.groupBy("topic", layers.printable(fn.col("day")).alias("day")).count().collect():
            have[row["topic"]][row["day"]] = row["count"]
        for topic in self._settings.contents.topics:
            if topic.kafka not in have:
                continue
            came = sum(have[topic.kafka].values())
            # A batch of one topic needs no filter, whose condition would be evaluated for each record.
            of_topic = raw if len(have) == 1 else raw.where(fn.col("topic") == topic.kafka)
            name, earlier = f"silver/{topic.name}", self._earlier(tables, topic, batch, have[topic.kafka])
            with ExitStack() as kept:
                rows = silver(topic, of_topic, earlier, kept)
                self._reached("repeats searched")
                tables.append(name, rows, batch)
            # Counted in the written rows: that costs less than decoding all values once more before.
            there = tables.read(name).where(fn.col("batch") == batch)
            right, begun = there.count(), batch <= self._begun
            if right < came or begun:
                # The rows of a batch that an earlier run began may be from another codec.
                wrong.append(layers.quarantine(decoded(topic, of_topic), there if begun else None))
            counts[topic.name] += right
            counts[f"{topic.name} quarantined"] += came - right
        self._reached("silver written")
        if wrong:
            tables.append(QUARANTINE, reduce(DataFrame.unionByName, wrong), batch)
        self._counts.update(counts)
        self._reached("batch written")
        self._progress.stage(STAGES[1], part=self._part(), records=self._records(), **self._counts)

    def _records(self) -> int:
        """Return the number of records read in this run."""
        return self._counts.total() - self._counts["batches"]

    def _part(self) -> float:
        """Return the share of the offsets present at the start that was read; offsets without records count too."""
        offsets = sum(span.size for _, span in by_place(self._progress.standing.inputs))
        return self._records() / offsets if offsets else 1.0

    def _earlier(
        self, tables: LakeTables, topic: Topic, batch: int, days: Iterable[date]
    ) -> DataFrame | None:
        """Return the silver rows of the days within the topic's horizon; None if there are none."""
        name = f"silver/{topic.name}"
        if topic.id is None or not tables.exists(name):
            return None
        near = (fn.col("day").between(*span) for span in around(days, topic.horizon_days))
        # Without their batches and places, of which a batch would read all.
        found = tables.before(name, batch).where(reduce(or_, near, fn.lit(False)))
        return found.drop("batch", *layers.PLACE)


def around(days: Iterable[date], horizon: int) -> list[tuple[date, date]]:
    """Return the spans of days that are at most `horizon` days away from one of these; only they are read of a table."""
    spans: list[tuple[int, int]] = []
    for day in sorted(each.toordinal() for each in days):
        first, last = max(1, day - horizon), min(date.max.toordinal(), day + horizon)
        if spans and first <= spans[-1][1] + 1:
            spans[-1] = spans[-1][0], last
        else:
            spans.append((first, last))
    return [(date.fromordinal(first), date.fromordinal(last)) for first, last in spans]


def work(argv: Sequence[str], reached: Reached = lambda _: None) -> int:
    """Run the job with these arguments, and return its exit status; see `Etl` for `reached`."""
    parser = job_parser("etl", "Topics to the lake.", lake="folder of the lake; created if there is none")
    topic_arguments(parser)
    parser.add_argument(
        "--format", choices=("delta", "parquet"), default="delta", help="format of a new lake (delta)"
    )
    parser.add_argument("--batch", type=int, default=2_000_000, help="offsets that a batch reads (2000000)")
    parser.add_argument("--allow-missing", action="store_true", help="go on even if unread records are gone")
    found = parser.parse_args(argv)
    settings = Settings(
        bootstrap_servers=found.bootstrap_servers,
        lake=found.lake,
        contents=contents_of(found),
        format=found.format,
        records_max=found.batch,
        allow_missing=found.allow_missing,
    )
    with writer_lock(settings.lake), reported_run(found, STAGES) as progress:
        counts = Etl(session_of(found)(), settings, progress, reached).run(uuid.uuid4().hex)
    print(json.dumps(counts))  # noqa: T201 - what the program answers
    return 0


if __name__ == "__main__":
    sys.exit(ended(work, sys.argv[1:]))
