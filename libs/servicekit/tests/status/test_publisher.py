import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client import CollectorRegistry

from contracts.records import ProcessStatus
from localkafka.broker import Broker
from localkafka.topics import create_topics
from localkafka.waiting import wait_until
from servicekit.status.numbers import ProcessCounters, Rates
from servicekit.status.publisher import (
    ENTRIES_MAX,
    Publisher,
    StatusBoard,
    publishing,
    status_of,
    status_stream,
)
from streamtable import App, Context, Group, Input, Json, Kafka, Persist, Stream, String, Table
from streamtable.base.types import Ack
from streamtable.errors import DeserializationError, RetryLater, StreamtableError
from streamtable.observe import Metrics


def handle(ctx: Context[str, Any], event: object) -> None: ...


GROUP: Group[str, Any] = Group(
    "g", Input(Stream("clicks", key=String(), value=Json()), handle), Persist(Json())
)


class Working:
    """The parts of a processor that a status reads."""

    def __init__(self, *, ready: bool = True) -> None:
        self.ready = ready
        self.working: tuple[int, ...] = ()
        self.recovering: Mapping[int, int] = {}


@pytest.fixture
def board() -> StatusBoard:
    return StatusBoard("service", "one")


def status(board: StatusBoard, numbers: ProcessCounters | None = None) -> ProcessStatus:
    rates = Rates()
    rates.add(0.0, numbers or ProcessCounters())
    return status_of(board, numbers or ProcessCounters(), rates, started_at=1, at=2, committed_at=0)


def test_a_recovering_partition_reports_its_progress(board: StatusBoard) -> None:
    processor = Working()
    board.processes(GROUP, processor)
    processor.recovering = {3: 1000}
    board.partitions()
    processor.recovering, processor.working = {3: 250}, (1,)
    found = status(board)
    assert found["state"] == "recovering"
    assert found["partitions"] == [
        {"partition": 1, "state": "working", "remaining": 0, "total": 0},
        {"partition": 3, "state": "recovering", "remaining": 250, "total": 1000},
    ]


def test_a_processor_is_starting_until_it_is_ready(board: StatusBoard) -> None:
    processor = Working(ready=False)
    board.processes(GROUP, processor)
    assert status(board)["state"] == "starting"
    processor.ready = True
    assert status(board)["state"] == "ready"


def test_a_process_is_ready_when_its_service_is(board: StatusBoard) -> None:
    answers = iter([False, True])
    board.serves("view", lambda: next(answers))
    assert [status(board)["state"] for _ in range(2)] == ["starting", "ready"]


def test_a_processor_reports_its_graph_and_the_lag_of_its_partitions(board: StatusBoard) -> None:
    processor = Working()
    processor.working = (0,)
    board.processes(GROUP, processor)
    numbers = ProcessCounters(
        read={("clicks", 0): 5, ("clicks", 1): 9}, sent={"g-table": 4}, lags={("clicks", 0): 2}
    )
    found = status(board, numbers)
    assert json.loads(found["graph"])["group"] == found["group"] == "g"
    assert found["inputs"] == [{"topic": "clicks", "partition": 0, "lag": 2, "records": 5}]
    assert [(each["topic"], each["direction"], each["records"]) for each in found["flows"]] == [
        ("clicks", "in", 14),
        ("g-table", "out", 4),
    ]


def test_watermarks_and_due_rows_are_reported_for_assigned_partitions(
    board: StatusBoard,
) -> None:
    processor = Working()
    processor.working = (1,)
    board.processes(GROUP, processor)
    numbers = ProcessCounters(
        watermarks={0: 5_000, 1: 6_000},
        due_behind_ms={1: 70},
    )
    numbers.due_at("g-minutes", 0)["rows"] = 1
    numbers.due_at("g-minutes", 1).update({"rows": 8, "late": 3, "late_share": 0.5, "moved_by": "clicks"})
    found = status(board, numbers)
    assert found["event_times"] == [{"partition": 1, "watermark": 6_000, "due_behind_ms": 70}]
    late = {"late": 3, "late_share": 0.5, "moved_by": "clicks"}
    assert found["due"] == [{"topic": "g-minutes", "partition": 1, "rows": 8, **late}]


def test_calls_are_reported_with_the_rate_of_their_answers(board: StatusBoard) -> None:
    first, second = ProcessCounters(), ProcessCounters()
    for numbers, answered in ((first, 10), (second, 30)):
        numbers.call("place").update(
            {"pending": 3, "oldest_seconds": 40.5, "answered": answered, "failed": 2}
        )
    rates = Rates()
    rates.add(0.0, first)
    rates.add(10.0, second)
    found = status_of(board, second, rates, started_at=1, at=2, committed_at=0)
    assert found["calls"] == [
        {"call": "place", "pending": 3, "oldest_seconds": 40.5, "answered": 30, "rate": 2.0, "failed": 2}
    ]


def test_aborts_are_reported_with_the_reason_of_the_latest(board: StatusBoard) -> None:
    rates = Rates()
    rates.add(0.0, ProcessCounters(aborts={"the broker is away": 5}))
    rates.add(
        1.0, numbers := ProcessCounters(aborts={"the broker is away": 5, "records were not acknowledged": 1})
    )
    rates.add(2.0, numbers)
    found = status_of(board, numbers, rates, started_at=1, at=2, committed_at=0)
    assert (found["aborts"], found["abort_reason"]) == (6, "records were not acknowledged")


def test_the_first_reported_role_is_kept(board: StatusBoard) -> None:
    board.processes(GROUP, Working())
    board.serves("metrics")
    assert board.key == "g/processor/one"


def test_an_error_is_reported_by_class_and_position_and_never_by_its_text(board: StatusBoard) -> None:
    board.failed(DeserializationError("the record says: secret").at("clicks", 3, 17))
    assert status(board)["state"] == "failed"
    assert status(board)["error"] == "DeserializationError clicks 3 17"


def test_a_status_record_is_bounded_and_counts_omitted_entries(board: StatusBoard) -> None:
    processor = Working()
    processor.working = tuple(range(3 * ENTRIES_MAX))
    board.processes(GROUP, processor)
    found = status(board)
    assert len(found["partitions"]) == ENTRIES_MAX
    assert found["omitted"] == 2 * ENTRIES_MAX


def test_memory_is_published(board: StatusBoard) -> None:
    assert status(board)["memory_bytes"] > 1 << 20


class Emitted:
    """An emitter whose acknowledgements the test controls."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, ProcessStatus | None]] = []
        self.answers: list[Future[Ack]] = []
        self.closed = False

    def emit(self, key: str, value: ProcessStatus | None) -> Future[Ack]:
        self.sent.append((key, value))
        self.answers.append(Future())
        return self.answers[-1]

    def close(self, timeout: float) -> None:
        self.closed = True


@pytest.fixture
def emitted() -> Emitted:
    return Emitted()


@pytest.fixture
def publisher(board: StatusBoard, emitted: Emitted) -> Iterator[Publisher]:
    emitter: Any = emitted
    made = Publisher(board, CollectorRegistry(), lambda: emitter, every=3600)
    made.start()
    yield made
    made.stop()


def test_nothing_is_published_before_the_role_is_reported(
    publisher: Publisher, board: StatusBoard, emitted: Emitted
) -> None:
    publisher.publish()
    assert emitted.sent == []
    board.serves("view")
    publisher.publish()
    assert [key for key, _ in emitted.sent] == ["service/view/one"]


def test_no_records_accumulate_while_kafka_does_not_respond(
    publisher: Publisher, board: StatusBoard, emitted: Emitted
) -> None:
    board.serves("view")
    for _ in range(5):
        publisher.publish()
        board.sends("another")
    assert len(emitted.sent) == 1
    emitted.answers[0].set_result(Ack("status", 0, 0))
    publisher.publish()
    assert len(emitted.sent) == 2


def test_an_unchanged_status_is_not_published_again_at_once(
    publisher: Publisher, board: StatusBoard, emitted: Emitted
) -> None:
    board.serves("view")
    publisher.publish()
    emitted.answers[0].set_result(Ack("status", 0, 0))
    publisher.publish()
    assert len(emitted.sent) == 1
    board.sends("another")
    publisher.publish()
    assert len(emitted.sent) == 2


def test_each_group_of_a_flow_in_one_process_has_a_status_of_its_own_numbers(
    board: StatusBoard, emitted: Emitted
) -> None:
    registry = CollectorRegistry()
    metrics = Metrics.register(registry)
    second: Group[str, Any] = Group("second", Input(Stream("by-url", key=String(), value=Json()), handle))
    board.processes(GROUP, Working())
    board.processes(second, Working())
    metrics.records_in.labels("g", "clicks", "0").inc(3)
    metrics.records_in.labels("second", "by-url", "0").inc(4)
    made: Any = lambda: emitted  # noqa: E731 - the factory of the publisher
    publisher = Publisher(board, registry, made)
    publisher.publish()
    reported = {key: value["flows"][0]["topic"] for key, value in emitted.sent if value is not None}
    assert reported == {"g/processor/one": "clicks", "second/processor/one": "by-url"}
    publisher.start()
    publisher.stop()
    assert {key for key, value in emitted.sent if value is None} == reported.keys()


def test_a_failure_is_logged_once_and_retried(
    publisher: Publisher, board: StatusBoard, emitted: Emitted, capsys: pytest.CaptureFixture[str]
) -> None:
    board.serves("view")
    for number in range(3):
        publisher.publish()
        emitted.answers[number].set_exception(RetryLater("no answer"))
        publisher.publish()
    assert len(emitted.sent) == 3
    said = capsys.readouterr()
    assert (said.out + said.err).count("status not published") == 1


def test_an_unexpected_error_does_not_end_the_publishing(board: StatusBoard, emitted: Emitted) -> None:
    surprises = iter([ValueError("surprise")])

    def ready() -> bool:
        for error in surprises:
            raise error
        return True

    emitter: Any = emitted
    board.serves("view", ready)
    publisher = Publisher(board, CollectorRegistry(), lambda: emitter, every=0.01)
    publisher.start()
    wait_until(lambda: len(emitted.sent) > 0)
    publisher.stop()
    assert emitted.sent[-1] == ("service/view/one", None)
    assert emitted.closed


def test_an_error_leaves_the_record_behind(board: StatusBoard, emitted: Emitted) -> None:
    emitter: Any = emitted
    board.serves("view")
    publisher = Publisher(board, CollectorRegistry(), lambda: emitter, every=3600)
    publisher.start()
    publisher.stop(StreamtableError("text"))
    (_, last) = emitted.sent[-1]
    assert last is not None
    assert (last["state"], last["error"]) == ("failed", "StreamtableError")


@pytest.fixture
def topic(broker: Broker, unique: str) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    config = {"cleanup.policy": "compact"}
    create_topics(admin, [NewTopic(unique, 1, 1, config=config)])
    return unique


@pytest.fixture
def unique() -> str:
    return f"status-{time.monotonic_ns()}"


@pytest.mark.broker
def test_a_view_of_the_topic_shows_a_process_until_it_stops_in_order(
    broker: Broker, topic: str, board: StatusBoard, tmp_path: Path
) -> None:
    kafka, registry = Kafka(broker.bootstrap_servers), CollectorRegistry()
    metrics = Metrics.register(registry)
    stream = status_stream(topic)
    table = Table(topic, stream.key, stream.value)
    with App(kafka, tmp_path).view(table) as view:
        view.wait_ready(60)
        with publishing(board, registry, kafka, topic):
            metrics.records_in.labels("g", "clicks", "0").inc(5)
            board.serves("view")
            wait_until(lambda: view.get("service/view/one") is not None)
            found = view.get("service/view/one")
            assert found is not None
            assert found["flows"][0]["records"] == 5
        wait_until(lambda: view.get("service/view/one") is None)


@pytest.mark.broker
def test_a_process_continues_without_the_topic(broker: Broker, board: StatusBoard, unique: str) -> None:
    began = time.monotonic()
    with publishing(board, CollectorRegistry(), Kafka(broker.bootstrap_servers), unique):
        board.serves("view")
    assert time.monotonic() - began < 30
