"""All rows about Spark with few records: minutes of starting Java, so it is among the long ones."""

from dataclasses import replace
from pathlib import Path

import pytest
from bench.results import Recorder
from bench.run import measure
from bench.site import Site
from bench.spark import BASELINES, SparkRows
from bench.tests.test_bench import TINY
from rich.console import Console

from localkafka.broker import Broker


def test_every_row_comes_after_the_one_that_it_is_compared_with() -> None:
    order = [row for step in SparkRows().steps() for row in step.rows]
    assert len(order) == len(set(order))
    for row, baseline in BASELINES.items():
        assert order.index(baseline) < order.index(row)


@pytest.mark.faults_long
@pytest.mark.timeout(900)
def test_every_job_is_measured_and_its_answer_is_right(broker: Broker, tmp_path: Path) -> None:
    site = Site(broker.bootstrap_servers, tmp_path, replace(TINY, batch=20_000))
    steps = SparkRows().steps()
    console = Console(width=130)
    with console.capture():
        figures = measure(steps, site, Recorder(tmp_path / "lines", "spark", "now", {}), console)
    assert [figure.error for figure in figures if figure.error] == []
    assert [figure.name for figure in figures if figure.value] == [row for step in steps for row in step.rows]
    site.delete("clicks-", "g")
