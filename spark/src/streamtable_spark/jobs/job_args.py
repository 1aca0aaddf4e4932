"""What the command lines of all jobs share: arguments that name Kafka and a group, and exit statuses."""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # Spark's bridge to Java ships no types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from streamtable_spark.errors import ConfigurationError, SparkJobError
from streamtable_spark.jobs.cluster import Cluster
from streamtable_spark.jobs.history import read, whole
from streamtable_spark.jobs.kafka import SERVERS_VARIABLE, kafka_of
from streamtable_spark.jobs.lake import lake_folder
from streamtable_spark.jobs.lake_history import lake_history, read_with
from streamtable_spark.jobs.manifest import Manifest, load
from streamtable_spark.jobs.positions import Offsets, Spans, spans_to
from streamtable_spark.jobs.run_report import run_report_arguments
from streamtable_spark.session import Local
from streamtable_spark.transforms.applied import applied, letters
from streamtable_spark.transforms.tables import TABLES, GroupTable, events, table_named

INTERRUPTED = 130


@dataclass(frozen=True)
class Source:
    """A group whose table is computed, and the topics that takes.

    Attributes:
        group: The name of the group, whose retries and dead letters are read.
        table: The table of the group's scenario.
        topics: The actual names of topics that are not called as in the scenario, by the scenario's name.
    """

    group: str
    table: GroupTable
    topics: Mapping[str, str]

    def topic(self, name: str) -> str:
        """Return the actual name of a topic of the scenario."""
        return self.topics.get(name, name)

    @property
    def retry(self) -> str:
        return f"{self.group}-retry"

    @property
    def dead_letters(self) -> str:
        return f"{self.group}-dead-letters"

    @property
    def inputs(self) -> list[str]:
        """The topics whose events make rows, without the retries."""
        return [self.topic(name) for name in self.table.inputs]

    @property
    def context(self) -> list[str]:
        return [self.topic(name) for name in self.table.context]

    @property
    def joins(self) -> list[str]:
        return [self.topic(name) for name in self.table.joins]


def rows_of(source: Source, records: DataFrame, dead: DataFrame, retries: Sequence[str]) -> DataFrame:
    """Compute the group's table from records of its inputs, retries and context, and of its dead letters; see `GroupTable.rows`."""
    counted = applied(records, retries, source.inputs, letters(dead))
    by_topic = {
        name: events(counted.where(counted["input"] == source.topic(name)), record)
        for name, record in source.table.inputs.items()
    }
    by_topic |= {
        name: events(records.where(records["topic"] == source.topic(name)), record)
        for name, record in source.table.context.items()
    }
    return source.table.rows(by_topic)


def history_of(
    spark: SparkSession, cluster: Cluster, spans: Spans, lake: str | None, *, allow_missing: bool
) -> DataFrame:
    """Return the records in these spans, from Kafka, or from a lake as far as it goes."""
    servers = cluster.bootstrap_servers
    if lake is None:
        return read(spark, servers, spans)
    starts = cluster.starts({topic: len(parts) for topic, parts in spans.items()})
    return read_with(
        spark, servers, spans, starts, lake_history(spark, lake, servers), allow_missing=allow_missing
    )


def spans_of(
    cluster: Cluster, ends: Mapping[str, Offsets], lake: str | None, *, allow_missing: bool
) -> Spans:
    """From the beginning of each topic to these ends: of what Kafka has, or, with a lake, of all that there ever was.

    Raises:
        InputLost: Without a lake, the beginning is gone.
    """
    if lake is not None:
        return spans_to(ends, {topic: dict.fromkeys(parts, 0) for topic, parts in ends.items()})
    starts = cluster.starts({topic: len(parts) for topic, parts in ends.items()})
    return whole(ends, starts, allow_missing=allow_missing)


def kafka_argument(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add what names Kafka; the result is a `Kafka`. Wrong settings raise `ConfigurationError` when it is read."""
    servers = os.environ.get(SERVERS_VARIABLE)
    parser.add_argument(
        "--bootstrap-servers",
        required=required and servers is None,
        default=servers,
        type=lambda text: kafka_of(text, os.environ),
        metavar="HOST:PORT",
        help=f"addresses of the brokers ({SERVERS_VARIABLE}); STREAMTABLE_KAFKA_... sets TLS and authentication",
    )


def arguments(name: str, about: str) -> argparse.ArgumentParser:
    """A parser with what all jobs that compute a group's table take."""
    parser = argparse.ArgumentParser(prog=name, description=about, allow_abbrev=False)
    kafka_argument(parser)
    run_report_arguments(parser)
    parser.add_argument(
        "--group", required=True, help="the group whose inputs, retries and dead letters are read"
    )
    parser.add_argument(
        "--from",
        dest="lake",
        default="earliest",
        metavar="WHERE",
        help="earliest (default): what Kafka has; or the folder of a lake, for what Kafka has no longer",
    )
    parser.add_argument(
        "--allow-missing", action="store_true", help="continue even if the first records are gone"
    )
    parser.add_argument(
        "--rebuilt",
        type=Path,
        metavar="MANIFEST",
        help="manifest of the rebuild that the group's table comes from, so that retries of the earlier group count too",
    )
    parser.add_argument(
        "--scenario",
        choices=sorted(TABLES),
        help="what the group computes; needed if its name does not say it",
    )
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="NAME=TOPIC",
        help="the topic that stands for one of the scenario's; may be repeated",
    )
    parser.add_argument("--cores", type=int, default=2, help="threads, where Spark runs in this process (2)")
    parser.add_argument("--memory", default="1g", help="heap of Spark, where it runs in this process (1g)")
    return parser


def source_of(found: argparse.Namespace) -> Source:
    """From the arguments. Raises `ConfigurationError`."""
    table = TABLES[found.scenario] if found.scenario else table_named(found.group)
    if table is None:
        raise ConfigurationError(
            f"what group {found.group!r} computes is not known: give --scenario, one of {', '.join(sorted(TABLES))}"
        )
    known = {*table.inputs, *table.context, *table.joins}
    topics = {}
    for pair in found.topic:
        name, is_pair, topic = pair.partition("=")
        if not is_pair or not topic or name not in known:
            raise ConfigurationError(
                f"--topic {pair!r}: NAME=TOPIC is needed, with a NAME among {', '.join(sorted(known))}"
            )
        topics[name] = topic
    return Source(found.group, table, topics)


def earlier_of(found: argparse.Namespace) -> Manifest | None:
    """The rebuild that the group's table comes from, from the arguments. Raises `ConfigurationError`."""
    if found.rebuilt is None:
        return None
    earlier = load(found.rebuilt)
    if earlier is None or earlier.state != "done" or earlier.as_group != found.group:
        raise ConfigurationError(
            f"--rebuilt {found.rebuilt}: the manifest of a rebuild as {found.group!r} that was done is needed"
        )
    return earlier


def with_earlier(spans: Spans, dead: Spans, earlier: Manifest | None, source: Source) -> tuple[Spans, Spans]:
    """What is read of inputs and letters, together with retries and letters that went into an earlier rebuild."""
    if earlier is None:
        return spans, dead
    known = {*source.inputs, *source.context}
    before = {topic: parts for topic, parts in earlier.inputs.items() if topic not in known}
    return before | spans, earlier.letters | dead


def retries_of(spans: Spans, source: Source) -> list[str]:
    """The retry topics among what is read."""
    return sorted(spans.keys() - {*source.inputs, *source.context})


def lake_of(found: argparse.Namespace) -> str | None:
    """The lake to read from, from the arguments; None: Kafka alone. Raises `ConfigurationError`."""
    return None if found.lake == "earliest" else lake_folder(found.lake)


def local_of(found: argparse.Namespace) -> Local:
    """Where Spark runs, from the arguments. Raises `ConfigurationError`."""
    return changed(Local(), cores=found.cores, memory=found.memory, partitions=max(4, found.cores * 2))


def ended(work: Callable[[Sequence[str]], int], argv: Sequence[str]) -> int:
    """Run a job; what went wrong is its last line. Returns its status."""
    try:
        return work(argv)
    except SparkJobError as error:
        print(f"\nerror: {error}", file=sys.stderr)  # noqa: T201 - a command line
        return error.status
    except (PySparkException, Py4JError) as error:
        print(f"\nerror: Spark has failed: {_in_short(str(error))}", file=sys.stderr)  # noqa: T201 - a command line
        return SparkJobError.status
    except KeyboardInterrupt:
        print("\nerror: interrupted; run it again, it goes on where it was", file=sys.stderr)  # noqa: T201 - a command line
        return INTERRUPTED


def _in_short(text: str) -> str:
    """The innermost cause of Java's many lines."""
    causes = [line.strip() for line in text.splitlines() if line.startswith("Caused by:")]
    return (causes[-1] if causes else text.strip().partition("\n")[0])[:600]
