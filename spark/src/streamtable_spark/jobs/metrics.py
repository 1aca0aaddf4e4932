"""The metrics of jobs: a file for each job, in Prometheus's text format, which outlives the run.

A job may end before it is scraped. So each writes a file into a folder, whole or not at all: node_exporter reads such a
folder (`--collector.textfile.directory`), and `streamtable-spark every` serves it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from contracts.records import JobRun
from streamtable_spark.errors import ConfigurationError

GAUGES: Final = {
    "running": "A run is under way",  # or was killed
    "started_seconds": "When the latest run has begun",
    "run_seconds": "How long the latest run has taken",  # so far, or in all
    "done_ratio": "How much of the latest run is done",  # 0 to 1
    "records": "Records that the latest run has read",
    "success_seconds": "When the last run that went well has ended",  # 0: there was none
    "failed": "The last run that has ended failed",
    "differences": "Keys that the last audit has found to differ",
}
"""The instruments of a job, by name and group. Times are in seconds since 1970."""
LABELS: Final = ("job_name", "group")
_PREFIX: Final = "streamtable_job_"
_SUFFIX: Final = ".prom"
_ENDED_WELL: Final = ("done", "different")
# The values of earlier runs, which stay valid until a run has ended.
_CARRIED: Final = ("success_seconds", "failed", "differences")


def gauges(registry: CollectorRegistry) -> dict[str, Gauge]:
    """Make the instruments in a registry, by their names in `GAUGES`; once for each registry."""
    return {name: Gauge(_PREFIX + name, text, LABELS, registry=registry) for name, text in GAUGES.items()}


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
        self._gauges = gauges(self._registry)
        try:
            known = families(self._path)
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"--metrics-dir: {self._path} cannot be read ({error}): delete it, or name another folder"
            ) from error
        values = {sample.name: sample.value for family in known for sample in family.samples}
        self._earlier = {name: values[_PREFIX + name] for name in _CARRIED if _PREFIX + name in values}

    def __str__(self) -> str:
        return str(self._path)

    def report(self, record: JobRun) -> None:
        """Write the file. Raises `OSError` if that fails."""
        at, began, state = record["at"] / 1000, record["started_at"] / 1000, record["state"]
        values = {
            "running": state == "running",
            "started_seconds": began,
            "run_seconds": at - began,
            "done_ratio": record["stages_done"] / max(1, record["stages"]),
            "records": record["records"],
            "success_seconds": 0,
            "failed": 0,
            **self._earlier,
        }
        if state in _ENDED_WELL:
            values |= {"success_seconds": at, "failed": 0}
        elif state == "failed":
            values["failed"] = 1
        if record["differences"] >= 0:
            values["differences"] = record["differences"]
        for name, value in values.items():
            self._gauges[name].labels(*self._labels).set(value)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_to_textfile(str(self._path), self._registry)

    def close(self) -> None:
        """Do nothing: no resource is open."""


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
    """Return the metrics in a file; none if there is no file."""
    try:
        return list(text_string_to_metric_families(path.read_text()))
    except FileNotFoundError:
        return []
