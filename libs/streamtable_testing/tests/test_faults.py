"""The faults of requests, and the errors that the engine gets."""

from collections.abc import Callable

import pytest

from streamtable.base.types import Ack, Committed, NextOffset, TopicPartition
from streamtable.errors import (
    Fenced,
    OutcomeUnknown,
    RetryLater,
    RewindNeeded,
    StreamtableError,
)
from streamtable_testing.clock import VirtualClock
from streamtable_testing.faults import CALLS, Fault, Faults
from streamtable_testing.log import VirtualKafka
from streamtable_testing.transactional import VirtualTransactionalProducer
from streamtable_testing.transactions import OFFSETS_TOPIC

OUT = TopicPartition("out", 0)
OFFSETS = {TopicPartition("in", 0): Committed(NextOffset(1))}


class Once(Faults):
    """The next call of a name suffers this fault."""

    def __init__(self) -> None:
        self.next: dict[str, Fault] = {}
        self.late_markers: set[str] = set()
        self.asked: list[tuple[str, str]] = []

    def before(self, process: str, call: str) -> Fault | None:
        self.asked.append((process, call))
        return self.next.pop(call, None)

    def marker_late(self, transactional_id: str, topic: str) -> bool:
        return topic in self.late_markers


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def faults() -> Once:
    return Once()


@pytest.fixture
def kafka(clock: VirtualClock, faults: Once) -> VirtualKafka:
    made = VirtualKafka(clock, faults)
    made.create_topic("out")
    made.create_topic("in")
    return made


@pytest.fixture
def outbox(kafka: VirtualKafka) -> VirtualTransactionalProducer:
    """With a transaction of one record."""
    made = kafka.process("p").transactional_producer("tx")
    made.open(1)
    begin(made, b"one")
    return made


def begin(outbox: VirtualTransactionalProducer, value: bytes) -> None:
    outbox.begin()
    outbox.produce("out", b"k", value, tracked=True)
    outbox.flush(1)


def values(kafka: VirtualKafka) -> list[bytes | None]:
    return [record.value() for _, record in kafka.records("out")]


@pytest.mark.parametrize(
    ("fault", "error", "after"),
    [
        (Fault.REFUSED, RewindNeeded, []),
        (Fault.REQUEST_LOST, OutcomeUnknown, []),
        (Fault.ANSWER_LOST, OutcomeUnknown, [b"one"]),
        (Fault.LATE, OutcomeUnknown, []),
    ],
)
def test_a_commit_that_suffers_a_fault_has_happened_or_not(
    fault: Fault,
    error: type[StreamtableError],
    after: list[bytes],
    kafka: VirtualKafka,
    outbox: VirtualTransactionalProducer,
    faults: Once,
) -> None:
    faults.next["commit"] = fault
    with pytest.raises(error):
        outbox.commit(1)
    assert values(kafka) == after


def test_a_late_commit_happens_when_it_arrives(
    kafka: VirtualKafka, outbox: VirtualTransactionalProducer, faults: Once
) -> None:
    faults.next["commit"] = Fault.LATE
    with pytest.raises(OutcomeUnknown):
        outbox.commit(1)
    kafka.deliver_late()
    assert values(kafka) == [b"one"]


def test_what_is_late_arrives_by_itself_in_the_end(
    kafka: VirtualKafka, outbox: VirtualTransactionalProducer, faults: Once, clock: VirtualClock
) -> None:
    faults.next["commit"] = Fault.LATE
    with pytest.raises(OutcomeUnknown):
        outbox.commit(1)
    clock.advance(5)
    assert values(kafka) == [b"one"]


def test_a_late_commit_of_a_fenced_producer_is_without_effect(
    kafka: VirtualKafka, outbox: VirtualTransactionalProducer, faults: Once
) -> None:
    faults.next["commit"] = Fault.LATE
    with pytest.raises(OutcomeUnknown):
        outbox.commit(1)
    successor = kafka.transactional_producer("tx")
    successor.open(1)
    begin(successor, b"two")
    kafka.deliver_late()
    assert values(kafka) == []
    successor.commit(1)
    assert values(kafka) == [b"two"]


def test_a_late_abort_ends_a_later_transaction_of_the_same_producer(
    kafka: VirtualKafka, outbox: VirtualTransactionalProducer, faults: Once
) -> None:
    faults.next["abort"] = Fault.LATE
    with pytest.raises(OutcomeUnknown):
        outbox.abort(1)
    outbox.abort(1)
    begin(outbox, b"two")
    kafka.deliver_late()
    outbox.commit(1)
    assert values(kafka) == []


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.ANSWER_LOST, Fault.LATE])
def test_records_without_an_answer_undo_their_transaction_and_nothing_of_them_is_ever_seen(
    fault: Fault, kafka: VirtualKafka, faults: Once
) -> None:
    outbox = kafka.transactional_producer("tx")
    outbox.open(1)
    faults.next["records"] = fault
    with pytest.raises(RewindNeeded):
        begin(outbox, b"lost")
    outbox.abort(1)
    begin(outbox, b"two")
    kafka.deliver_late()
    outbox.commit(1)
    assert values(kafka) == [b"two"]


def test_records_without_an_answer_cannot_be_committed(kafka: VirtualKafka, faults: Once) -> None:
    outbox = kafka.transactional_producer("tx")
    outbox.open(1)
    faults.next["records"] = Fault.REQUEST_LOST
    with pytest.raises(RewindNeeded):
        begin(outbox, b"lost")
    with pytest.raises(RewindNeeded):
        outbox.commit(1)


def test_refused_records_take_a_new_producer(kafka: VirtualKafka, faults: Once) -> None:
    outbox = kafka.transactional_producer("tx")
    outbox.open(1)
    faults.next["records"] = Fault.REFUSED
    with pytest.raises(RewindNeeded):
        begin(outbox, b"lost")
    with pytest.raises(OutcomeUnknown, match="new producer"):
        outbox.abort(1)


def test_without_transactions_late_records_are_seen(kafka: VirtualKafka, faults: Once) -> None:
    outbox = kafka.transactional_producer(None)
    faults.next["records"] = Fault.LATE
    with pytest.raises(RewindNeeded):
        begin(outbox, b"late")
    begin(outbox, b"again")
    kafka.deliver_late()
    assert values(kafka) == [b"again", b"late"]


def test_readers_stop_before_a_transaction_whose_marker_is_late(
    kafka: VirtualKafka, outbox: VirtualTransactionalProducer, faults: Once
) -> None:
    faults.late_markers = {"out"}
    outbox.commit(1)
    kafka.append("out", b"k", b"behind")
    reader = kafka.table_reader("r")
    reader.assign({OUT: 0})
    assert reader.poll(10, 0) == []
    assert reader.position(OUT) == 0
    kafka.deliver_late()
    assert [batch.values for batch in reader.poll(10, 0)] == [[b"one", b"behind"]]
    assert reader.position(OUT) == 3


def test_offsets_stay_pending_until_their_marker_is_written(
    kafka: VirtualKafka, outbox: VirtualTransactionalProducer, faults: Once
) -> None:
    consumer = kafka.group_consumer("g", "i")
    consumer.subscribe(["in"], Deaf())
    consumer.poll(1, 0)
    outbox.send_offsets(OFFSETS, consumer.membership())
    faults.late_markers = {OFFSETS_TOPIC}
    outbox.commit(1)
    with pytest.raises(RetryLater):
        kafka.cluster().stable_offsets("g", OFFSETS)
    assert values(kafka) == [b"one"]
    kafka.deliver_late()
    assert kafka.cluster().stable_offsets("g", OFFSETS) == OFFSETS


@pytest.mark.parametrize("go_on", [lambda old, _: begin(old, b"two"), lambda _, new: new.open(1)])
def test_late_markers_are_written_before_the_same_id_goes_on(
    go_on: Callable[[VirtualTransactionalProducer, VirtualTransactionalProducer], None],
    kafka: VirtualKafka,
    outbox: VirtualTransactionalProducer,
    faults: Once,
) -> None:
    faults.late_markers = {"out"}
    outbox.commit(1)
    assert values(kafka) == []
    go_on(outbox, kafka.transactional_producer("tx"))
    assert values(kafka) == [b"one"]


def test_a_transaction_that_outlived_its_time_is_aborted_and_takes_a_new_producer(
    kafka: VirtualKafka, outbox: VirtualTransactionalProducer, clock: VirtualClock
) -> None:
    clock.advance(9.9)
    kafka.append("out", b"k", b"behind")
    assert values(kafka) == []
    clock.advance(0.2)
    assert values(kafka) == [b"behind"]
    with pytest.raises(OutcomeUnknown, match=r"the transaction was 10\.1 s old"):
        outbox.commit(1)


def test_a_producer_that_was_fenced_gets_the_error(
    kafka: VirtualKafka, outbox: VirtualTransactionalProducer
) -> None:
    kafka.transactional_producer("tx").open(1)
    with pytest.raises(Fenced):
        outbox.commit(1)
    with pytest.raises(Fenced):
        outbox.produce("out", b"k", b"v")


def test_everything_that_is_asked_has_a_name_and_a_process(kafka: VirtualKafka, faults: Once) -> None:
    log = kafka.process("p")
    cluster, reader, consumer = log.cluster(), log.table_reader("r"), log.group_consumer("g", "i")
    outbox, answers = log.transactional_producer("tx"), list[Ack | StreamtableError]()
    cluster.topics([])
    cluster.watermarks([])
    cluster.stable_offsets("g", [])
    cluster.stable_ends([])
    reader.assign({OUT: 0})
    reader.poll(1, 0)
    consumer.subscribe(["in"], Deaf())
    consumer.poll(1, 0)
    consumer.seek(TopicPartition("in", 0), 0)
    consumer.resume([TopicPartition("in", 0)])
    consumer.poll(1, 0)
    consumer.commit(OFFSETS)
    outbox.open(1)
    begin(outbox, b"v")
    outbox.send_offsets(OFFSETS, consumer.membership())
    outbox.commit(1)
    outbox.abort(1)
    log.producer().produce("out", b"k", b"v", answers.append)
    consumer.close()
    assert {process for process, _ in faults.asked} == {"p"}
    assert {call for _, call in faults.asked} == set(CALLS)


@pytest.mark.parametrize(
    "call", ["topics", "watermarks", "stable-offsets", "stable-ends", "open", "commit-offsets"]
)
def test_questions_without_an_answer_are_to_be_asked_again(
    call: str, kafka: VirtualKafka, faults: Once
) -> None:
    consumer = kafka.group_consumer("g", "i")
    consumer.subscribe(["in"], Deaf())
    consumer.poll(1, 0)
    faults.next[call] = Fault.REQUEST_LOST
    ask: dict[str, Callable[[], object]] = {
        "topics": lambda: kafka.cluster().topics([]),
        "watermarks": lambda: kafka.cluster().watermarks([]),
        "stable-offsets": lambda: kafka.cluster().stable_offsets("g", []),
        "stable-ends": lambda: kafka.cluster().stable_ends([]),
        "open": lambda: kafka.transactional_producer("tx").open(1),
        "commit-offsets": lambda: consumer.commit(OFFSETS),
    }
    with pytest.raises(RetryLater):
        ask[call]()


@pytest.mark.parametrize("call", ["fetch", "read"])
def test_records_whose_answer_was_lost_are_fetched_again(
    call: str, kafka: VirtualKafka, faults: Once
) -> None:
    kafka.append("in", b"k", b"v")
    place = TopicPartition("in", 0)
    consumer, reader = kafka.group_consumer("g", "i"), kafka.table_reader("r")
    consumer.subscribe(["in"], Deaf())
    consumer.poll(1, 0)
    consumer.seek(place, 0)
    consumer.resume([place])
    reader.assign({place: 0})
    faults.next[call] = Fault.ANSWER_LOST
    poll = consumer.poll if call == "fetch" else reader.poll
    assert [len(poll(10, 0)) for _ in range(3)] == [0, 1, 0]


def test_a_single_record_without_an_answer_fails_and_may_have_arrived(
    kafka: VirtualKafka, faults: Once
) -> None:
    faults.next["produce"] = Fault.ANSWER_LOST
    answers: list[Ack | StreamtableError] = []
    kafka.producer().produce("out", b"k", b"v", answers.append)
    assert isinstance(answers[0], RetryLater)
    assert values(kafka) == [b"v"]


class Deaf:
    def assigned(self, places: object) -> None: ...
    def revoked(self, places: object) -> None: ...
    def lost(self, places: object) -> None: ...
