from pathlib import Path

from bench import processes
from bench.clicks import Clicks, fill_unseen
from bench.site import Site
from bench.tests.test_bench import TINY

from localkafka.broker import Broker
from localkafka.waiting import wait_until


def test_processes_share_the_partitions_before_they_begin_and_no_click_is_missing(
    broker: Broker, tmp_path: Path
) -> None:
    site = Site(broker.bootstrap_servers, tmp_path, TINY, broker_pid=broker.pid)
    figures = [*processes.one(site), *processes.several(site, number=2)]
    assert [figure.name for figure in figures if figure.value] == [
        "count_processes_1",
        "kafka_cpu",
        "count_processes_2",
    ]


def test_clicks_of_an_open_transaction_are_not_seen_before_it_is_committed(
    broker: Broker, tmp_path: Path
) -> None:
    site = Site(broker.bootstrap_servers, tmp_path, TINY)
    site.create(["unseen"], 4)
    producer = fill_unseen(site.broker, Clicks(50, 5), "unseen")
    assert site.last_values("unseen") == {}
    producer.commit_transaction()
    wait_until(lambda: len(site.last_values("unseen")) == 5)  # the markers come a moment after the commit
    site.delete("unseen")
