"""The programs work with very few records, their results add up, and wrong ones are found."""

from dataclasses import replace
from pathlib import Path

import pytest
from bench import microbatch
from bench.measure import RowFailed
from bench.site import Site
from bench.tests.test_bench import TINY

from contracts.records import UserStatus
from localkafka.broker import Broker


@pytest.fixture
def site(broker: Broker, tmp_path: Path) -> Site:
    return Site(broker.bootstrap_servers, tmp_path, TINY)


def row(clicks: int, status: str = "at lunch") -> UserStatus:
    return UserStatus(status=status, at=1, id="", clicks=clicks)


def test_both_joins_have_each_status_and_every_click(site: Site) -> None:
    figures = [*microbatch.redis_loop(site), *microbatch.join(site)]
    assert [figure.name for figure in figures if figure.value] == ["redis_loop", "microbatch_join"]


def test_a_steady_load_is_seen_in_the_output(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(microbatch, "RATE", 500)  # a busy machine keeps up with that
    site = Site(broker.bootstrap_servers, tmp_path, replace(TINY, live_seconds=2.0))
    assert [figure.name for figure in microbatch.steady(site) if figure.value] == [
        "microbatch_latency_p50",
        "microbatch_latency_p99",
        "microbatch_memory",
    ]


def test_a_process_goes_on_in_a_store_that_it_found_full_after_another_was_killed(site: Site) -> None:
    (figure,) = microbatch.restart(site)
    assert figure.value
    assert figure.name == "microbatch_restart"


def test_rows_that_do_not_add_up_fail_the_row() -> None:
    microbatch.check_rows([row(2), row(3)], 5, 2)
    with pytest.raises(RowFailed, match="have 5 clicks and 1 statuses, not 6 and 2"):
        microbatch.check_rows([row(2), row(3, "")], 6, 2)
