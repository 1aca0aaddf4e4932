import pytest
from prometheus_client import CollectorRegistry, Counter

from servicekit.http.metrics import HttpMetrics
from servicekit.status.numbers import ProcessCounters, Rates, numbers_in
from streamtable.observe import Metrics


def test_counters_are_read_from_the_metrics() -> None:
    registry = CollectorRegistry()
    metrics, http = Metrics.register(registry), HttpMetrics.register(registry)
    metrics.records_in.labels("g", "clicks", "0").inc(3)
    metrics.records_in.labels("g", "clicks", "1").inc(4)
    metrics.records_out.labels("g", "g-table").inc(5)
    answered = Counter(
        "streamtable_queries_answered", "as of streamtable-query", ["topic"], registry=registry
    )
    answered.labels("other-table").inc(6)
    metrics.dead_letters.labels("g", "clicks", "0").inc()
    metrics.dead_letters.labels("g", "clicks", "1").inc()
    metrics.lag.labels("g", "clicks", "1").set(17)
    metrics.commit_seconds.labels("g").observe(0.25)
    metrics.aborts.labels("g", "the broker is away").inc()
    metrics.rebalances.labels("g", "assigned").inc(2)
    metrics.store_bytes.labels("g", "g-table", "0").set(1000)
    metrics.watermark_timestamp.labels("g", "1").set(12.5)
    metrics.due_behind.labels("g", "1").set(0.25)
    metrics.due_rows.labels("g", "g-minutes", "1").set(9)
    metrics.late_records.labels("g", "g-minutes", "1", "clicks").inc(5)
    metrics.late_records.labels("g", "g-minutes", "1", "(silence)").inc()
    metrics.late_share.labels("g", "g-minutes", "1").set(0.25)
    metrics.watermark_timestamp.labels("other", "1").set(99)
    for partition, age in (("0", 0.5), ("1", 2.5)):
        metrics.view_age_seconds.labels("view", "g-table", partition).set(age)
    http.requests.labels("GET", "/", "200").inc(8)
    http.requests.labels("GET", "/", "503").inc()
    for probe in ("/readyz", "/livez", "/metrics"):
        http.requests.labels("GET", probe, "503").inc(5)
    found = numbers_in(registry, {"other"})
    assert (found.watermarks, found.due_behind_ms) == ({1: 12_500}, {1: 250})
    late = {"late": 6, "late_share": 0.25, "moved_by": "clicks"}
    assert list(found.due.values()) == [{"topic": "g-minutes", "partition": 1, "rows": 9, **late}]
    assert found.read == {("clicks", 0): 3, ("clicks", 1): 4}
    assert found.read_by_topic == {"clicks": 7}
    assert found.sent == {"g-table": 5}
    assert found.queried == {"other-table": 6}
    assert found.lags == {("clicks", 1): 17}
    assert found.copies == {"g-table": (2, 2.5)}
    assert (found.commits, found.commit_seconds) == (1, 0.25)
    assert found.aborts == {"the broker is away": 1}
    assert (found.dead_letters, found.rebalances, found.store_bytes) == (2, 2, 1000)
    assert (found.requests, found.failed_requests) == (9, 1)


def test_rates_are_over_the_last_ten_seconds() -> None:
    rates = Rates()
    for second in range(30):
        count = 10 * second if second < 15 else 150 + 30 * (second - 15)
        rates.add(
            float(second),
            ProcessCounters(read={("clicks", 0): count}, sent={"out": second}, requests=2 * second),
        )
    assert rates.read("clicks") == pytest.approx(30.0)
    assert rates.sent("out") == pytest.approx(1.0)
    assert rates.requests == pytest.approx(2.0)


def test_rates_are_zero_at_the_first_sample() -> None:
    rates = Rates()
    rates.add(5.0, ProcessCounters(read={("clicks", 0): 100}))
    assert rates.read("clicks") == 0
    assert rates.commit_ms == 0


def test_the_commit_duration_is_that_of_the_latest_commits() -> None:
    rates = Rates()
    rates.add(0.0, ProcessCounters(commits=10, commit_seconds=5.0))
    rates.add(5.0, ProcessCounters(commits=20, commit_seconds=5.1))
    assert rates.commit_ms == pytest.approx(10.0)
