"""The jobs as functions, on the session of the tests: the effect of a command, without its start."""

from collections.abc import Callable
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from streamtable_spark.jobs import rebuild, reconcile
from streamtable_spark.jobs.cluster import Cluster
from streamtable_spark.jobs.job_args import ended
from streamtable_spark.jobs.manifest import Manifest
from streamtable_spark.jobs.plan import RebuildRequest
from streamtable_spark.jobs.progress import Progress
from streamtable_spark.jobs.report import Report
from streamtable_spark.jobs.source import Source
from streamtable_spark.transforms.tables import TABLES

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def source(group: str = "click-count", scenario: str | None = None) -> Source:
    """A group with the topics of its scenario; by default the scenario has the group's name."""
    return Source(group, TABLES[scenario or group])


class Jobs:
    """Rebuilds and audits of the groups of a stage."""

    def __init__(self, spark: SparkSession, stage: Any) -> None:
        self.spark = spark
        self.stage = stage

    def manifest(self, as_group: str) -> Path:
        path: Path = self.stage.folder / f"{as_group}.json"
        return path

    def rebuild(
        self,
        as_group: str,
        reached: Callable[[str], None] = lambda _: None,
        of: Source | None = None,
        now: Callable[[], datetime] = lambda: NOW,
        **more: Any,
    ) -> Manifest:
        request = RebuildRequest(
            source=of or source(), as_group=as_group, manifest=self.manifest(as_group), **more
        )
        with Cluster(self.stage.servers) as cluster:
            return rebuild.rebuild(
                lambda: self.spark, cluster, request, _silent(rebuild.STAGES), now=now, reached=reached
            )

    def audit(
        self, of: Source | None = None, session: Callable[[], SparkSession] | None = None, **more: Any
    ) -> Report:
        """`session` is called between the cut and the reading."""
        request = reconcile.AuditRequest(source=of or source(), folder=self.stage.folder / "audit", **more)
        with Cluster(self.stage.servers) as cluster:
            return reconcile.reconcile(
                session or (lambda: self.spark), cluster, request, _silent(reconcile.STAGES), now=lambda: NOW
            )

    def arguments(self, as_group: str, *more: str) -> list[str]:
        """The arguments of a rebuild of click-count."""
        manifest = ["--manifest", str(self.manifest(as_group))]
        return [
            "--bootstrap-servers", self.stage.servers, "--group", "click-count", "--as", as_group, *manifest, *more
        ]  # fmt: skip

    def refused(self, as_group: str, *more: str) -> int:
        """The rebuild as a command. It ends before it needs Spark, or the test is wrong."""
        return ended(rebuild.main, self.arguments(as_group, *more))


def _silent(stages: tuple[str, ...]) -> Progress:
    return Progress(stages, StringIO(), lambda: 0.0)
