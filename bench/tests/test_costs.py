from dataclasses import replace

import pytest
from bench.costs import ERROR_MAX, POINTS, Point, checked, measured, rate, shares, table
from bench.figures import Figure, by_name
from bench.plan import steps
from bench.results import figures_of, read_published

from streamtable_cli.estimate import Measured

PUBLISHED = read_published()["full"]
FIGURES = by_name(figures_of(PUBLISHED))
CORES = PUBLISHED[0]["machine"]["cores"]
COSTS = Measured(1.0, 3.0, 4.0, 0.0, 0.1, 1.0, 1e6, 2.0, "nowhere")


def test_the_model_comes_within_the_stated_error_of_each_rate_that_is_published() -> None:
    found = list(checked(FIGURES, measured(FIGURES, ""), CORES))
    assert {each.row for each in found} >= {
        "count_keys_100000",
        "count_partitions_16",
        "count_partitions_64",
    }
    assert {each.row: each.error for each in found if abs(each.error) > ERROR_MAX} == {}


def test_every_row_of_the_model_is_one_that_is_measured() -> None:
    rows = {row for step in steps() for row in step.rows}
    assert {point.row for point in POINTS} | {"kafka_cpu", "memory_10k", "first_record", "restore"} <= rows


def test_costs_that_rates_were_made_of_are_found_again() -> None:
    figures = {
        point.row: _figure(point.row, rate(point, replace(COSTS, kafka_us=None), 2))
        for point in POINTS
        if point.processes == 1
    }
    more = [
        Figure("memory_10k", 90.0, "MB", cpu_seconds=3.0, records=100_000),
        Figure("first_record", 0.7, "s", cpu_seconds=0.7),
        Figure("restore", 5e5, "records/s"),
        Figure("handler_exactly_once", 1.0, "records/s", cpu_seconds=9.0, records=1_000_000),
        Figure("kafka_cpu", 1.5, "us"),
    ]
    found = measured(figures | by_name(more), "here")
    assert found.record_us == pytest.approx(COSTS.record_us, rel=0.02)
    assert found.row_us == pytest.approx(COSTS.row_us, rel=0.02)
    assert found.load_us == pytest.approx(COSTS.load_us, rel=0.02)
    assert found.kafka_us == 1.5
    assert found.restore_rows_s == 5e5


def _figure(row: str, records_s: float) -> Figure:
    return Figure(
        row, records_s, "records/s", cpu_seconds=COSTS.busy_cores / records_s * 1e6, records=1_000_000
    )


def test_few_keys_and_long_commits_change_fewer_rows_and_many_keys_are_loaded() -> None:
    usual = shares(Point("usual"), 300_000)
    assert shares(Point("few", keys=1_000), 300_000).changed < 0.2 * usual.changed
    assert shares(Point("long", commit_s=2.0), 300_000).changed < usual.changed
    assert usual.loaded < 0.1
    assert shares(Point("many", keys=10_000_000), 300_000).loaded > 0.9


def test_on_a_machine_that_is_full_more_processes_are_no_faster() -> None:
    one, two, four = (rate(Point("", partitions=12, processes=number), COSTS, 2) for number in (1, 2, 4))
    assert one < 1.5 * two
    assert four < 1.2 * two
    assert rate(Point("", partitions=12, processes=4), COSTS, 64) > 2.5 * one


def test_too_few_rows_are_no_basis() -> None:
    with pytest.raises(ValueError, match="run `make bench`"):
        measured({}, "")


def test_the_page_has_a_row_for_each_rate() -> None:
    shown = table(list(checked(FIGURES, measured(FIGURES, ""), CORES)))
    assert "| count_keys_1000000 |" in shown
    assert "make bench" in table([])
