"""The quick form of the benchmark with very few records: every program works, and every count is right."""

import json
from pathlib import Path

import pytest
from bench import calls, failover, live, plan, reading, streams
from bench.clicks import Clicks
from bench.figures import Figure
from bench.measure import RowFailed
from bench.programs.calls import CLICK_COUNT, USER_STATUS
from bench.results import Recorder
from bench.run import measure, show
from bench.site import Site, Sizes
from rich.console import Console

from localkafka.broker import Broker

TINY = Sizes(stream=2_000, handler=1_000, keys=1_000, gets=100, seconds=0.2, live_seconds=0.5, tries=1)


@pytest.fixture
def site(broker: Broker, tmp_path: Path) -> Site:
    return Site(broker.bootstrap_servers, tmp_path, TINY)


@pytest.mark.faults_long("each row of the benchmark, with its processes; `.ci/run` measures them all")
def test_every_row_of_the_quick_form_is_measured_and_written_down(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "bench.jsonl"
    steps = plan.chosen(plan.steps(), quick=True)
    console = Console(width=130)
    with console.capture() as shown:
        figures = measure(steps, site, Recorder(file, "quick", "now", {"commit": "abc"}), console)
        show(figures, console)
    assert [figure.error for figure in figures if figure.error] == []
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["name"] for line in lines] == [row for step in steps for row in step.rows]
    for line in lines:
        assert line["value"] > 0
        assert line["baseline"] == plan.BASELINES.get(line["name"])
        assert (line["ratio"] is None) == (line["baseline"] is None)
        assert line["name"] in shown.get()
    site.delete("clicks-", "rows-")


def test_a_view_and_the_services_answer_and_clicks_come_to_be_seen(site: Site) -> None:
    figures = [*reading.view_get(site), *reading.click_count(site), *live.latency(site)]
    assert [figure.name for figure in figures if not figure.value] == []
    assert {figure.name for figure in figures} >= {"view_get_p99", "latency_p99", *CLICK_COUNT}
    site.delete("rows-")


def test_the_services_with_two_tables_answer_and_writers_see_what_they_wrote(site: Site) -> None:
    figures = [*reading.user_status(site), *live.own_write(site)]
    assert [figure.name for figure in figures if figure.value] == [
        *USER_STATUS,
        "own_write_p50",
        "own_write_p99",
    ]
    site.delete("rows-", "statuses-")


@pytest.mark.faults_long("half a minute: calls of a second, until their rate is steady, by turns")
def test_calls_of_a_second_have_results_and_records_beside_them_come_out(site: Site) -> None:
    figures = calls.calls(site)
    assert [figure.name for figure in figures if figure.value] == list(calls.ROWS)


def test_handlers_that_join_emit_and_look_up_have_every_row_that_they_ask_for(site: Site) -> None:
    clicks = Clicks(1_000, 100)
    figures = [*streams.joined(site, "join", clicks), *streams.looked_up(site, "lookup", clicks)]
    assert [figure.name for figure in figures if figure.value] == ["join", "lookup"]
    site.delete(clicks.topic, "rows-")


@pytest.mark.faults_long  # half a minute: a session has to end, twice; tests of replicas show that the work goes on
def test_a_process_goes_on_for_one_that_is_killed_with_warm_copies_and_without(site: Site) -> None:
    figures = failover.failover(site)
    assert [figure.name for figure in figures if figure.value] == ["failover_warm", "failover_cold"]


def test_a_row_that_fails_has_its_reason_and_the_others_are_measured(site: Site, tmp_path: Path) -> None:
    def fail(_: Site) -> list[Figure]:
        raise RowFailed("the counts are wrong")

    steps = [plan.Step(("broken",), fail), plan.Step(("good",), lambda _: [Figure("good", 1.0, "s")])]
    console = Console(width=130)
    with console.capture():
        figures = measure(steps, site, Recorder(tmp_path / "lines", "quick", "now", {}), console)
    assert [(figure.name, figure.error) for figure in figures] == [
        ("broken", "RowFailed: the counts are wrong"),
        ("good", None),
    ]
