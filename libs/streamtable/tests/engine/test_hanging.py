"""Detection and reports of partitions that wait for a transaction; tests/system has the tests on a real broker."""

from collections.abc import MutableMapping
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from streamtable.base.transactions import commands
from streamtable.base.types import TopicPartition, Watermarks
from streamtable.engine.recovery.hanging import HangingTransactions, ReadProgress, Standstill, standstills
from streamtable.observe import Metrics, metrics_page

PLACE = TopicPartition("in", 3)
TIMEOUT = 90.0


@pytest.fixture
def cluster(make_cluster: Any) -> Any:
    return make_cluster({})


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def hanging(cluster: Any, clock: Any, registry: CollectorRegistry) -> HangingTransactions:
    return HangingTransactions("g", cluster, clock, TIMEOUT, Metrics.register(registry))


def lines(logged: list[MutableMapping[str, Any]], event: str) -> list[MutableMapping[str, Any]]:
    return [line for line in logged if line["event"].startswith(event)]


@pytest.mark.parametrize(
    ("position", "stable", "waits"),
    [
        (5, 5, True),
        (6, 5, True),  # behind a marker that came before
        (4, 5, False),  # there are committed records to read
        (8, 8, False),  # the end
        (5, 8, False),
    ],
)
def test_a_partition_waits_when_all_below_its_last_stable_offset_is_read_and_more_is_there(
    position: int, stable: int, *, waits: bool
) -> None:
    found = standstills({}, [ReadProgress(PLACE, position, 8)], {PLACE: stable}, 1.0)
    assert found == ({PLACE: Standstill(stable, 1.0)} if waits else {})


def test_a_partition_waits_since_it_was_first_seen_at_this_offset() -> None:
    before = {PLACE: Standstill(5, 1.0)}
    readings = [ReadProgress(PLACE, 6, 9)]
    assert standstills(before, readings, {PLACE: 5}, 60.0) == {PLACE: Standstill(5, 1.0)}
    assert standstills(before, readings, {PLACE: 6}, 60.0) == {PLACE: Standstill(6, 60.0)}
    assert standstills(before, [], {}, 60.0) == {}


def test_a_transaction_that_does_not_end_is_reported_once_and_again_when_it_has_ended(
    hanging: HangingTransactions, cluster: Any, clock: Any, registry: CollectorRegistry
) -> None:
    cluster.marks[PLACE], cluster.stable[PLACE] = Watermarks(0, 9), 5
    with capture_logs() as logged:
        for _ in range(8):
            hanging.look([ReadProgress(PLACE, 5, 9)], None)
            clock.sleep(15)
        assert hanging.reason.startswith(
            "it has waited for 120 s for a transaction that does not end, in in[3];"
        )
        page = metrics_page(registry).decode()
        assert 'hanging_transaction_seconds{group="g",partition="3",topic="in"} 105.0' in page
        cluster.stable[PLACE] = 9
        hanging.look([ReadProgress(PLACE, 5, 9)], None)
    (line,) = lines(logged, "partitions wait for a transaction")
    assert (line["partitions"], line["seconds"]) == ({"in[3]": 5}, 90)
    assert line["show"] == (
        "kafka-transactions.sh --bootstrap-server kafka:9092 describe-producers --topic in --partition 3"
    )
    assert len(lines(logged, "transaction has ended")) == 1
    assert hanging.reason == ""
    assert "hanging_transaction_seconds{" not in metrics_page(registry).decode()


def test_transactions_that_end_in_time_are_not_reported(
    hanging: HangingTransactions, cluster: Any, clock: Any
) -> None:
    cluster.marks[PLACE] = Watermarks(0, 99)
    with capture_logs() as logged:
        for offset in range(20):  # there is always one that is open
            cluster.stable[PLACE] = offset
            hanging.look([ReadProgress(PLACE, offset, 99)], None)
            clock.sleep(15)
    assert logged == []
    assert hanging.reason == ""


def test_committed_offsets_that_are_held_are_reported_with_the_partition_that_has_them(
    hanging: HangingTransactions, cluster: Any, clock: Any
) -> None:
    place = cluster.offsets_partition("g")
    cluster.marks[place], cluster.stable[place] = Watermarks(0, 30), 17
    since = clock.monotonic()
    with capture_logs() as logged:
        for _ in range(8):
            hanging.look([], since)
            clock.sleep(15)
        hanging.look([], None)
    (line,) = lines(logged, "partitions wait for a transaction")
    assert line["partitions"] == {"__consumer_offsets[1]": 17}
    assert "--topic __consumer_offsets --partition 1 --start-offset 17" in line["abort"]
    assert hanging.reason == ""


def test_nothing_is_asked_where_everything_is_read(hanging: HangingTransactions, cluster: Any) -> None:
    hanging.look([ReadProgress(PLACE, 9, 9)], None)
    assert cluster.asked == []


def test_commands_name_what_to_look_up_where_it_is_not_known() -> None:
    show, abort = commands("b:1", TopicPartition("__consumer_offsets", -1), -1)
    assert show.endswith("describe-producers --topic __consumer_offsets --partition PARTITION")
    assert abort.endswith("--start-offset CurrentTransactionStartOffset")
