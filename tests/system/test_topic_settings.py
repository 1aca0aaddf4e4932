"""The topics of a flow on a broker whose defaults would lose event times and results, and the purge of old records."""

import threading
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.system.bench import Bench, until

from localkafka.fixtures import OwnBroker
from streamtable import App, EventTime, Json, Kafka, Long, Stream, String
from streamtable.base.ports import TopicDescription
from streamtable.base.types import TopicPartition, Watermarks
from streamtable.errors import TopicMismatch
from streamtable.flow import Flow, Tumbling, Windowed, WindowedKey, WindowedTable

MINUTE_MS = 60_000
BEGAN_MS = 1_700_000_040_000  # a minute of November 2023
EVENTS: Stream[str, Any] = Stream("events", String(), Json())
MINUTES: Stream[Windowed[str], int] = Stream("minutes", WindowedKey(String(), MINUTE_MS), Long())


def program(name: str) -> tuple[Flow, WindowedTable[str, int]]:
    flow = Flow(name, event_time=EventTime(idle_after=None))
    keyed = flow.stream(EVENTS, time=lambda value: int(value["t"])).group_by("by", lambda value: str(value["k"]), key=String())  # fmt: skip
    table = keyed.window(Tumbling(timedelta(minutes=1), grace=timedelta(0))).count("n")
    table.final().to(MINUTES)
    return flow, table


@contextmanager
def running(app: App, flow: Flow) -> Iterator[dict[str, BaseException]]:
    """All groups of the flow, each in a thread; yields the errors that have ended them."""
    errors: dict[str, BaseException] = {}
    processors = [app.processor(group, commit_interval=0.05) for group in flow.groups]

    def run(processor: Any) -> None:
        try:
            processor.run()
        except BaseException as error:  # noqa: BLE001 - for the test to look at
            errors[processor.group.name] = error

    threads = [threading.Thread(target=run, args=(each,)) for each in processors]
    for thread in threads:
        thread.start()
    try:
        yield errors
    finally:
        for each in processors:
            each.stop()
        for thread in threads:
            thread.join()


def write(app: App, minutes: int) -> None:
    with app.emitter(EVENTS) as emitter:
        for number in range(minutes):
            emitter.emit("x", {"k": "a", "t": BEGAN_MS + MINUTE_MS * number})
        emitter.flush(30)


def marks(app: App, *topics: str) -> list[Watermarks]:
    cluster = app.kafka.cluster()
    try:
        found = cluster.watermarks([TopicPartition(topic, 0) for topic in topics])
        return [found[TopicPartition(topic, 0)] for topic in topics]
    finally:
        cluster.close()


def test_a_cluster_that_dates_and_deletes_records_by_itself_changes_no_result_of_a_flow(
    own_broker: OwnBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    logged: list[MutableMapping[str, Any]],
) -> None:  # fmt: skip
    monkeypatch.setattr("streamtable.engine.processor.PURGE_SECONDS", 0.5)
    broker = own_broker(
        {
            "log.message.timestamp.type": "LogAppendTime",
            "log.message.timestamp.before.max.ms": "3600000",
            "log.retention.ms": "1000",
            "log.retention.check.interval.ms": "500",
            "log.segment.delete.delay.ms": "100",
        }
    )
    kafka = Kafka(broker.bootstrap_servers, admin_timeout=30)
    flow, table = program("f")
    with App(kafka, tmp_path / "state") as app:
        administered = kafka.admin()
        administered.create_topics([TopicDescription(EVENTS.name, 1, 1, {"retention.ms": "-1"})])
        app.create_topics(flow, partitions=1)
        with running(app, flow) as errors:
            write(app, 6)
            view = app.view(table.table)
            view.wait_ready(60)
            until(lambda: len(list(view.range())) == 6 or errors, "six windows")
            assert not errors
            assert [key.start_ms for key, _ in view.range()] == [BEGAN_MS + MINUTE_MS * n for n in range(6)]
            # The last window is open. The records between the groups are gone; the output's records stay, though old.
            until(lambda: marks(app, "f-by")[0].low >= 6, "handled records are purged")
            results = marks(app, "minutes")[0]
            assert results.low == 0 < results.high
        assert not [
            line for line in logged if line["event"] in {"topic loses results", "record deleted by retention"}
        ]
        with running(app, flow) as errors:  # it continues at the first remaining record
            write(app, 7)
            until(lambda: len(list(view.range())) == 7 or errors, "another window")
            assert not errors
        administered.alter_topic("f-by", {"message.timestamp.type": "LogAppendTime"})
        administered.close()
        for group in flow.groups:
            with pytest.raises(TopicMismatch, match="LogAppendTime"):
                app.processor(group).run()


def test_default_retention_of_an_output_is_said_at_the_start(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, logged: list[MutableMapping[str, Any]]
) -> None:
    source = Stream(bench.name("in"), String(), Long())
    out = Stream(bench.name("out"), String(), Long())
    flow = Flow(bench.name("f"))
    flow.stream(source).to(out)
    (group,) = flow.groups
    bench.create(group)
    with bench.run(group):
        until(lambda: any(line["event"] == "topic loses results" for line in logged), "the warning")
    (line,) = [line for line in logged if line["event"] == "topic loses results"]
    assert (line["topic"], line["setting"]) == (out.name, "retention.ms")
