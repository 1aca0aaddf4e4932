"""The metrics of jobs outlive their runs, and the metrics of all jobs can be read together."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from contracts.records import JobRun
from streamtable_spark.errors import ConfigurationError
from streamtable_spark.jobs.metrics import MetricsFile, MetricsFolder
from streamtable_spark.jobs.progress import Standing
from streamtable_spark.jobs.runs import State, Subject, record_of

STARTED = 1_700_000_000_000


def record(state: State, at_s: int, *, job: str = "etl", group: str = "", **standing: int) -> JobRun:
    subject = Subject(
        run="r", job=job, version="0.1", started_at=STARTED, group=group, as_group="", lake="", report=""
    )
    found = Standing(stages=4, done=standing.get("done", 0), differences=standing.get("differences"))
    return record_of(subject, found, STARTED + at_s * 1000, state)


def shown(folder: Path) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(MetricsFolder(folder))
    lines = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
    return {
        name.removeprefix("streamtable_job_"): float(value)
        for name, value in (line.rsplit(" ", 1) for line in lines)
    }


def test_a_run_shows_how_far_it_is_and_when_it_has_ended(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path, "etl", "")
    file.report(record("running", 5, done=1))
    label = '{group="",job_name="etl"}'
    assert shown(tmp_path) == {
        f"running{label}": 1,
        f"started_seconds{label}": STARTED / 1000,
        f"run_seconds{label}": 5,
        f"done_ratio{label}": 0.25,
        f"records{label}": 0,
        f"success_seconds{label}": 0,
        f"failed{label}": 0,
    }
    file.report(record("done", 9, done=4))
    after = shown(tmp_path)
    assert (after[f"running{label}"], after[f"done_ratio{label}"]) == (0, 1)
    assert after[f"success_seconds{label}"] == STARTED / 1000 + 9


def test_what_earlier_runs_have_come_to_is_known_until_this_one_has_ended(tmp_path: Path) -> None:
    names = [
        f'{name}{{group="g",job_name="reconcile"}}' for name in ("success_seconds", "failed", "differences")
    ]

    def gauges(state: State, at_s: int, **standing: int) -> list[float]:
        MetricsFile(tmp_path, "reconcile", "g").report(
            record(state, at_s, job="reconcile", group="g", **standing)
        )
        return [shown(tmp_path)[name] for name in names]

    began = STARTED / 1000
    assert gauges("different", 1, differences=3) == [began + 1, 0, 3]
    assert gauges("running", 2) == [began + 1, 0, 3]
    assert gauges("failed", 3) == [began + 1, 1, 3]
    assert gauges("running", 4) == [began + 1, 1, 3]
    assert gauges("interrupted", 5) == [began + 1, 1, 3]
    assert gauges("done", 6, differences=0) == [began + 6, 0, 0]


def test_several_jobs_keep_a_file_each_and_are_shown_together(tmp_path: Path) -> None:
    MetricsFile(tmp_path, "etl", "").report(record("running", 1))
    MetricsFile(tmp_path, "rebuild", "a").report(record("running", 1, job="rebuild", group="a"))
    MetricsFile(tmp_path, "rebuild", "b").report(record("running", 1, job="rebuild", group="b"))
    assert {path.name for path in tmp_path.iterdir()} == {"etl.prom", "rebuild.a.prom", "rebuild.b.prom"}
    assert sum(name.startswith("running") for name in shown(tmp_path)) == 3


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "etl.prom").write_text("what is this\n")
    with pytest.raises(ConfigurationError, match=r"etl\.prom cannot be read .*: delete it"):
        MetricsFile(tmp_path, "etl", "")
