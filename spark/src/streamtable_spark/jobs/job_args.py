"""The common part of all jobs' command lines: the arguments for Kafka, the group and Spark, and the exit statuses."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace as changed
from datetime import timedelta
from functools import partial

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # Spark's bridge to Java ships no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streamtable_spark.errors import ConfigurationError, SparkJobError
from streamtable_spark.jobs.files import path_of
from streamtable_spark.jobs.kafka import SERVERS_VARIABLE, kafka_of
from streamtable_spark.jobs.lake import lake_folder
from streamtable_spark.jobs.manifest import Manifest, load
from streamtable_spark.jobs.positions import TABLE
from streamtable_spark.jobs.run_report import run_report_arguments
from streamtable_spark.jobs.source import Source
from streamtable_spark.replay import FAILED, counted, program_of
from streamtable_spark.session import Local, connect
from streamtable_spark.transforms.tables import LONG, TABLES, GroupTable, counts, table_named

INTERRUPTED = 130


def job_parser(name: str, about: str, *, kafka: bool = True, lake: str = "") -> argparse.ArgumentParser:
    """Return a parser with the arguments of all jobs. Invalid Kafka settings or lakes raise `ConfigurationError` in parsing.

    Args:
        name: The name of the job.
        about: The description of the job, for --help.
        kafka: Whether the job needs Kafka.
        lake: The description of --lake; empty if the job has no such argument.
    """
    parser = argparse.ArgumentParser(prog=f"streamtable-spark {name}", description=about, allow_abbrev=False)
    parser.set_defaults(job=name, group="", as_group="", lake=None)
    servers = os.environ.get(SERVERS_VARIABLE)
    parser.add_argument(
        "--bootstrap-servers",
        required=kafka and servers is None,
        default=servers,
        type=lambda text: kafka_of(text, os.environ),
        metavar="HOST:PORT",
        help=f"addresses of the brokers ({SERVERS_VARIABLE}); STREAMTABLE_KAFKA_... sets TLS and authentication",
    )
    run_report_arguments(parser)
    if lake:
        parser.add_argument("--lake", required=True, type=lake_folder, metavar="FOLDER", help=lake)
    here, heap = "where Spark runs in this process", Local().memory
    parser.add_argument("--cores", type=int, default=2, help=f"threads, {here} (2)")
    parser.add_argument("--memory", default=heap, help=f"heap of Spark, {here} ({heap})")
    return parser


def arguments(name: str, about: str) -> argparse.ArgumentParser:
    """Return a parser with the arguments of all jobs that compute a group's table."""
    parser = job_parser(name, about)
    add = parser.add_argument
    add("--group", required=True, help="the group whose inputs, retries and dead letters are read")
    add(
        "--from",
        dest="lake",
        type=lambda text: None if text == "earliest" else lake_folder(text),
        metavar="WHERE",
        help="earliest (default): what Kafka has; or the folder of a lake, for what Kafka has no longer",
    )
    add("--allow-missing", action="store_true", help="continue even if records are gone or were never read")
    add(
        "--rebuilt",
        metavar="MANIFEST",
        help="manifest, a path or a URL, of the rebuild that the group's table comes from, so that retries and the loop of the earlier group count too",
    )
    add(
        "--graph",
        metavar="MODULE:NAME",
        help="the group, the flow that it belongs to, or a function that makes it for a name: its handlers compute the table",
    )
    add(
        "--scenario",
        choices=sorted(TABLES),
        help="what a group of the demo computes, in Spark itself; needed if its name does not say it",
    )
    add(
        "--topic",
        action="append",
        default=[],
        metavar="NAME=TOPIC",
        help="the topic that stands for one of the graph's or the scenario's; may be repeated",
    )
    return parser


def source_of(found: argparse.Namespace, *, goes_on: bool = False) -> Source:
    """Return the group that the arguments name. Raises `ConfigurationError`.

    Args:
        found: The arguments.
        goes_on: Whether processors continue from the computed tables: they need all of them, also the ids that count
            once, which Spark's native counts do not compute.
    """
    source = _of_scenario(found) if found.graph is None else _of_graph(found, goes_on=goes_on)
    known = {*source.inputs, *source.joins, *source.context} - {source.loop}
    topics = {}
    for pair in found.topic:
        name, is_pair, topic = pair.partition("=")
        if not is_pair or not topic or name not in known:
            raise ConfigurationError(
                f"--topic {pair!r}: NAME=TOPIC is needed, with a NAME among {', '.join(sorted(known))}"
            )
        topics[name] = topic
    return changed(source, topics=topics)


def _of_scenario(found: argparse.Namespace) -> Source:
    table = TABLES[found.scenario] if found.scenario else table_named(found.group)
    if table is None:
        raise ConfigurationError(
            f"what group {found.group!r} computes is not known: give --graph MODULE:NAME, or --scenario {' or '.join(sorted(TABLES))}"
        )
    return Source(found.group, table)


def _of_graph(found: argparse.Namespace, *, goes_on: bool) -> Source:
    program = program_of(found.graph, found.group)
    late = [edge.stream.name for edge in program.load().inputs if edge.start == "latest"]
    if late and not found.allow_missing:
        raise ConfigurationError(
            f"group {program.name!r} began at the end of {', '.join(late)} (start='latest'), and no topic says where: --allow-missing computes its tables from all records of these inputs"
        )
    native = None if goes_on and set(program.tables) != {TABLE} else counted(program)
    if native is None:
        return Source(found.group, program)
    topic, codec, by, within_ms = native
    rows = counts(topic, by, timedelta(milliseconds=within_ms))
    return Source(found.group, GroupTable(program.name, {topic: codec}, LONG, (), rows))


def earlier_of(found: argparse.Namespace, session: Callable[[], SparkSession]) -> Manifest | None:
    """Return the rebuild that the group's table comes from, if the arguments name one. Raises `ConfigurationError`."""
    if found.rebuilt is None:
        return None
    earlier = load(path_of(found.rebuilt, session))
    if earlier is None or earlier.state != "done" or earlier.as_group != found.group:
        raise ConfigurationError(
            f"--rebuilt {found.rebuilt}: the manifest of a rebuild as {found.group!r} that was done is needed"
        )
    return earlier


def session_of(found: argparse.Namespace) -> Callable[[], SparkSession]:
    """Check the arguments for Spark, and return what creates the job's session. Raises `ConfigurationError`."""
    local = Local(found.cores, found.memory, partitions=max(4, found.cores * 2))
    return partial(connect, found.job, local)


def ended(work: Callable[[Sequence[str]], int], argv: Sequence[str]) -> int:
    """Run a job, and return its exit status. An error is printed as the last line."""
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
    """Return the innermost cause in a Java stack trace, or the error of a handler."""
    if FAILED in text:
        return text[text.index(FAILED) :].partition("\n")[0]
    causes = [line.strip() for line in text.splitlines() if line.startswith("Caused by:")]
    return (causes[-1] if causes else text.strip().partition("\n")[0])[:600]
