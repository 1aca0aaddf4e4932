from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from prometheus_client import CollectorRegistry

from streamtable.base.topics import Stream
from streamtable.base.types import TopicPartition, Watermarks
from streamtable.codec.plain import Long, String
from streamtable.engine.watch.metrics import EngineMetrics
from streamtable.errors import StoreCorrupted
from streamtable.flow import Flow, Tumbling
from streamtable.graph.group import EventTime, Group, Input, OnError
from streamtable.observe import Metrics, SilentProgress
from streamtable.store.memory import MemoryStores
from streamtable_testing.tester import Tester


def test_a_damaged_store_has_no_size_and_the_lag_is_still_reported(
    counted: Group[str, int], stores: MemoryStores, make_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster({})
    cluster.marks = {TopicPartition("events", 0): Watermarks(0, 7)}
    store = stores.open("counted-table", 0)
    task = SimpleNamespace(
        partition=0,
        next_offsets={"events": 4},
        stores={"counted-table": store},
        event_clock=None,
        due=None,
    )
    registry = CollectorRegistry()
    meters = EngineMetrics(counted, Metrics.register(registry), SilentProgress())
    assignment: Any = SimpleNamespace(tasks={0: task}, companions=None)
    place = {"group": "counted", "partition": "0"}

    def size() -> float | None:
        return registry.get_sample_value("streamtable_store_bytes", {**place, "topic": "counted-table"})

    def fail() -> int:
        raise StoreCorrupted("bit flip")

    meters.sample(assignment, cluster)
    assert size() == 0
    monkeypatch.setattr(store, "size_bytes", fail)
    meters.sample(assignment, cluster)
    assert size() is None
    assert registry.get_sample_value("streamtable_lag_records", {**place, "topic": "events"}) == 3


def test_the_watermark_of_a_partition_is_shown_while_it_has_one(make_cluster: Any) -> None:
    cluster = make_cluster({})
    cluster.marks = {TopicPartition("events", 0): Watermarks(0, 0)}
    registry = CollectorRegistry()
    events = Stream("events", String(), String())
    group = Group("timed", Input(events, lambda ctx, event: None), EventTime())
    meters = EngineMetrics(group, Metrics.register(registry), SilentProgress())

    def shown(**watermarks: int) -> list[float | None]:
        tasks = {
            int(name[1:]): SimpleNamespace(
                partition=int(name[1:]),
                next_offsets={},
                stores={},
                event_clock=SimpleNamespace(watermark_ms=at),
                due=None,
            )
            for name, at in watermarks.items()
        }
        assignment: Any = SimpleNamespace(tasks=tasks, companions=None)
        meters.sample(assignment, cluster)
        name = "streamtable_watermark_timestamp_seconds"
        return [registry.get_sample_value(name, {"group": "timed", "partition": p}) for p in "01"]

    assert shown(p0=1_500, p1=-1) == [1.5, None]
    assert shown(p1=2_000) == [None, 2.0]
    meters.close()
    assert (
        registry.get_sample_value(
            "streamtable_watermark_timestamp_seconds", {"group": "timed", "partition": "1"}
        )
        is None
    )


def test_late_records_are_counted_with_their_commit_and_not_if_it_was_undone() -> None:
    flow = Flow("f", event_time=EventTime(idle_after=None))
    window = Tumbling(timedelta(minutes=1), grace=timedelta(0))
    flow.stream(Stream("events", String(), Long()), time=lambda at: at).group_by_key().window(window).count(
        "n"
    )
    registry = CollectorRegistry()
    with (
        patch("streamtable_testing.instance.CollectorRegistry", lambda: registry),
        Tester(commit_on_request=True) as tester,
    ):
        tester.run(flow)
        tester.emit_raw("events", b"a", Long().encode(1_600_000_000_000))
        tester.emit_raw("events", b"a", Long().encode(1_500_000_000_000))
        place = {"group": "f", "topic": "f-n", "partition": "0"}
        late = place | {"moved_by": "events"}
        assert registry.get_sample_value("streamtable_late_records_total", late) is None
        tester.commit()
        assert registry.get_sample_value("streamtable_late_records_total", late) == 1
        assert registry.get_sample_value("streamtable_windowed_records_total", place) == 2


def test_tombstones_that_are_left_out_are_counted_with_their_commit() -> None:
    flow, registry = Flow("f"), CollectorRegistry()
    flow.stream(Stream("events", String(), Long())).group_by_key().count("n")
    with (
        patch("streamtable_testing.instance.CollectorRegistry", lambda: registry),
        Tester(commit_on_request=True) as tester,
    ):
        tester.run(flow)
        for value in (None, Long().encode(1), None):
            tester.emit_raw("events", b"a", value)
        place = {"group": "f", "topic": "events", "partition": "0"}
        assert registry.get_sample_value("streamtable_tombstones_skipped_total", place) is None
        tester.commit()
        assert registry.get_sample_value("streamtable_tombstones_skipped_total", place) == 2
        tester.emit_raw("events", b"a", None)
        tester.commit()
        assert registry.get_sample_value("streamtable_tombstones_skipped_total", place) == 3


def test_the_lag_of_copies_is_shown_for_as_long_as_there_are_any(counted: Group[str, int]) -> None:
    registry = CollectorRegistry()
    meters = EngineMetrics(counted, Metrics.register(registry), SilentProgress())

    def lags() -> list[float | None]:
        place = {"group": "counted", "topic": "counted-table"}
        name = "streamtable_standby_lag_records"
        return [registry.get_sample_value(name, {**place, "partition": str(p)}) for p in (0, 1)]

    meters.standby({TopicPartition("counted-table", 0): 4, TopicPartition("counted-table", 1): 0})
    assert lags() == [4, 0]
    meters.standby({TopicPartition("counted-table", 1): 2})
    assert lags() == [None, 2]
    meters.close()
    assert lags() == [None, None]


def test_open_windows_are_counted_in_steps_and_closed_ones_are_not() -> None:
    flow = Flow("f", event_time=EventTime(idle_after=None))
    window = Tumbling(timedelta(minutes=1), grace=timedelta(0))
    stream = flow.stream(Stream("events", String(), Long()), time=lambda at: at)
    stream.group_by_key().window(window).count("n")
    minute, began = 60_000, 1_600_000_020_000
    registry = CollectorRegistry()
    with (
        patch("streamtable_testing.instance.CollectorRegistry", lambda: registry),
        patch("streamtable.engine.watch.metrics._ROWS_COUNTED_MAX", 2),
        Tester() as tester,
    ):

        def counted() -> float | None:
            for _ in range(10):
                tester.advance(5)
            place = {"group": "f", "topic": "f-n", "partition": "0"}
            return registry.get_sample_value("streamtable_due_rows", place)

        tester.run(flow)
        for number in range(5):
            tester.emit_raw("events", b"key-%d" % number, Long().encode(began))
        assert counted() == 5
        tester.emit_raw("events", b"later", Long().encode(began + minute))
        assert counted() == 1


def test_dead_letters_are_counted_by_the_topic_that_they_were_read_from() -> None:
    inputs: list[Input[str, int, Any]] = [
        Input(Stream(name, String(), Long()), lambda ctx, event: None, on_error=OnError.DEAD_LETTER)
        for name in ("clicks", "orders")
    ]
    group: Group[str, Any] = Group("g", *inputs)
    registry = CollectorRegistry()
    with patch("streamtable_testing.instance.CollectorRegistry", lambda: registry), Tester() as tester:

        def counted() -> list[float | None]:
            name, place = "streamtable_dead_letters_total", {"group": "g", "partition": "0"}
            topics = ("clicks", "orders", "g-retry", "g-dead-letters")
            return [registry.get_sample_value(name, {**place, "topic": topic}) for topic in topics]

        tester.run(group)
        for topic in ("clicks", "orders", "orders"):
            tester.emit_raw(topic, b"a", b"no long")
        assert counted() == [1, 2, None, None]
        tester.retry(group, tester.dead_letters(group)[0])
        assert counted() == [1, 2, 1, None]
