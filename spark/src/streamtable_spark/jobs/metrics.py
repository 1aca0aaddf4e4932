"""The metrics of jobs: a file for each job, in Prometheus's text format, which outlives the run.

A job may end before anybody asks it. So each writes a file into a folder, whole or not at all: node_exporter reads such a
folder (`--collector.textfile.directory`), and `streamtable-spark every` serves it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from contracts.records import JobRun
from streamtable_spark.errors import ConfigurationError

LABELS: Final = ("job_name", "group")
_SUFFIX: Final = ".prom"
_ENDED_WELL: Final = ("done", "different")
# What is known of earlier runs, and holds until a run has ended.
_CARRIED: Final = ("streamtable_job_success_seconds", "streamtable_job_failed", "streamtable_job_differences")


@dataclass(frozen=True)
class JobMetrics:
    """The instruments of a job, by name and group. Times are in seconds since 1970.

    Attributes:
        running: 1 while a run is in progress; a run that was killed leaves it at 1.
        started: When the latest run began.
        seconds: The duration of the latest run so far, or in all.
        share: The share of the latest run that is done: 0 to 1.
        records: The number of records that the latest run has read.
        success: When the last successful run ended; 0 if there was none.
        failed: 1 if the last run that has ended failed.
        differences: The number of keys that differed in the last audit.
    """

    running: Gauge
    started: Gauge
    seconds: Gauge
    share: Gauge
    records: Gauge
    success: Gauge
    failed: Gauge
    differences: Gauge

    @classmethod
    def register(cls, registry: CollectorRegistry) -> Self:
        """Make the instruments in a registry; once for each registry."""

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"streamtable_job_{name}", text, LABELS, registry=registry)

        return cls(
            gauge("running", "A run is under way"),
            gauge("started_seconds", "When the latest run has begun"),
            gauge("run_seconds", "How long the latest run has taken"),
            gauge("done_ratio", "How much of the latest run is done"),
            gauge("records", "Records that the latest run has read"),
            gauge("success_seconds", "When the last run that went well has ended"),
            gauge("failed", "The last run that has ended failed"),
            gauge("differences", "Keys that the last audit has found to differ"),
        )


class MetricsFile:
    """The file of one job and group.

    Args:
        folder: The folder of the file.
        job: The name of the job.
        group: The group whose table the job computes; empty if there is none.

    Raises:
        ConfigurationError: The file exists and cannot be read.
    """

    def __init__(self, folder: Path, job: str, group: str) -> None:
        self._path = folder / f"{'.'.join(filter(None, (job, group)))}{_SUFFIX}"
        self._labels = (job, group)
        self._registry = CollectorRegistry()
        self._metrics = JobMetrics.register(self._registry)
        try:
            known = families(self._path)
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"--metrics-dir: {self._path} cannot be read ({error}): delete it, or name another folder"
            ) from error
        self._earlier = {
            sample.name: sample.value
            for family in known
            for sample in family.samples
            if sample.name in _CARRIED
        }

    def __str__(self) -> str:
        return str(self._path)

    def report(self, record: JobRun) -> None:
        """Write it. Raises `OSError` if that cannot be done."""
        made, earlier = self._metrics, self._earlier
        at, state = record["at"] / 1000, record["state"]
        stages = max(1, record["stages"])
        made.running.labels(*self._labels).set(state == "running")
        made.started.labels(*self._labels).set(record["started_at"] / 1000)
        made.seconds.labels(*self._labels).set(at - record["started_at"] / 1000)
        made.share.labels(*self._labels).set(record["stages_done"] / stages)
        made.records.labels(*self._labels).set(record["records"])
        success, failed, differences = (earlier.get(name, 0) for name in _CARRIED)
        made.success.labels(*self._labels).set(at if state in _ENDED_WELL else success)
        ended = {"failed": 1.0, **dict.fromkeys(_ENDED_WELL, 0.0)}
        made.failed.labels(*self._labels).set(ended.get(state, failed))
        if record["differences"] >= 0:
            made.differences.labels(*self._labels).set(record["differences"])
        elif _CARRIED[2] in earlier:
            made.differences.labels(*self._labels).set(differences)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_to_textfile(str(self._path), self._registry)

    def close(self) -> None:
        """Nothing is left open."""


class MetricsFolder(Collector):
    """Collects the metrics of all files in a folder, read at each scrape."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterator[Metric]:
        together: dict[str, Metric] = {}
        for path in sorted(self._folder.glob(f"*{_SUFFIX}")):
            for family in families(path):
                known = together.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                known.samples.extend(family.samples)
        yield from together.values()


def families(path: Path) -> list[Metric]:
    """What a file holds; nothing if there is none."""
    try:
        return list(text_string_to_metric_families(path.read_text()))
    except FileNotFoundError:
        return []
