"""Report a run of a job: on a terminal, and in a topic or a metrics file if the arguments ask for it."""

import argparse
import os
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from streamtable_spark.errors import ConfigurationError, SparkJobError
from streamtable_spark.jobs.manifest import code_version
from streamtable_spark.jobs.metrics import MetricsFile
from streamtable_spark.jobs.progress import Progress
from streamtable_spark.jobs.runs import Reporter, Run, RunsTopic, Subject

RUNS_VARIABLE: Final = "SERVICEKIT_RUNS_TOPIC"
METRICS_VARIABLE: Final = "SPARK_JOB_METRICS_DIR"


def run_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the destinations of the reports of a run; see `reported_run`."""
    parser.add_argument(
        "--runs-topic",
        default=os.environ.get(RUNS_VARIABLE),
        metavar="TOPIC",
        help=f"compacted topic to which the run reports its progress, for the console ({RUNS_VARIABLE})",
    )
    parser.add_argument(
        "--metrics-dir",
        default=os.environ.get(METRICS_VARIABLE),
        type=Path,
        metavar="FOLDER",
        help=f"folder for a file with the job's metrics, for Prometheus ({METRICS_VARIABLE})",
    )


@contextmanager
def reported_run(found: argparse.Namespace, stages: Sequence[str], *, report: str = "") -> Iterator[Progress]:
    """Run a job with progress: it is shown, and reported to the destinations of the arguments, until the run ends.

    Args:
        found: The arguments of `job_parser`, with the `job`, the `group` whose table it computes or audits, the one whose
            table it writes (`as_group`), and the `lake` that it reads or writes; a topic needs `bootstrap_servers` too.
        stages: The stages of the job; see `Progress`.
        report: The path of the report or manifest; empty if there is none.

    Raises:
        ConfigurationError: A topic for reports is set, but no Kafka.
    """
    reporters: list[Reporter] = []
    if found.runs_topic is not None:
        if found.bootstrap_servers is None:
            raise ConfigurationError(f"--runs-topic {found.runs_topic}: give --bootstrap-servers too")
        reporters.append(RunsTopic(found.bootstrap_servers, found.runs_topic))
    if found.metrics_dir is not None:
        reporters.append(MetricsFile(found.metrics_dir, found.job, found.group))
    started = _now_ms()
    subject = Subject(
        run=f"{found.job}-{started}-{secrets.token_hex(3)}",
        job=found.job,
        version=code_version(),
        started_at=started,
        group=found.group,
        as_group=found.as_group,
        lake=found.lake or "",
        report=report,
    )
    progress = Progress(stages, sys.stderr, time.monotonic)
    run = Run(subject, reporters, lambda: progress.standing, _now_ms)
    run.begin()
    try:
        yield progress
    except (KeyboardInterrupt, SystemExit):
        run.end("interrupted")
        raise
    except SparkJobError as error:
        run.end("failed", str(error))
        raise
    except BaseException as error:  # its text may hold a piece of a record
        run.end("failed", f"{type(error).__name__}: the job's last line says more")
        raise
    run.end("different" if progress.standing.differences else "done")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
