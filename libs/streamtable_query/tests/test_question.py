"""One question to Kafka for many threads."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from streamtable.base.clock import SystemClock
from streamtable.errors import AuthorizationError, NotReady, RetryLater
from streamtable_query.question import Question

PATIENT = 10.0
THREADS = 12
DENIED = AuthorizationError(user="a", operation="DESCRIBE", resource="group", name="g", reason="denied")


class JumpingClock(SystemClock):
    """The system's clock, which a test puts forward."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class SlowKafka:
    """Answers, or fails, when a test lets it."""

    def __init__(self) -> None:
        self.asked = 0
        self.error: Exception | None = None
        self.answering = threading.Event()

    def ask(self) -> int:
        self.asked += 1
        assert self.answering.wait(PATIENT)
        if self.error is not None:
            raise self.error
        return self.asked


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock()


@pytest.fixture
def kafka() -> Iterator[SlowKafka]:
    kafka = SlowKafka()
    yield kafka
    kafka.answering.set()


@pytest.fixture
def question(kafka: SlowKafka, clock: JumpingClock) -> Question[int]:
    return Question(kafka.ask, 0, clock)


@pytest.mark.parametrize("error", [None, RetryLater("Kafka is away"), DENIED])
def test_all_who_wait_share_one_question_and_its_answer_or_its_error(
    question: Question[int], kafka: SlowKafka, clock: JumpingClock, error: Exception | None
) -> None:
    since = clock.monotonic()
    kafka.error = error
    with ThreadPoolExecutor(THREADS) as pool:
        waiting = [pool.submit(question.answer, since, since + PATIENT) for _ in range(THREADS)]
        assert not wait(waiting, 0.1).done
        kafka.answering.set()
        wait(waiting, PATIENT)
        waiting.append(pool.submit(question.answer, since, since))
    for each in waiting:
        assert each.exception() is error
        assert error is not None or each.result() == 1
    assert kafka.asked == 1


def test_whoever_needs_a_later_answer_than_an_error_or_an_answer_asks_again(
    question: Question[int], kafka: SlowKafka, clock: JumpingClock
) -> None:
    kafka.answering.set()
    kafka.error = RetryLater("Kafka is away")
    with pytest.raises(RetryLater, match="is away"):
        question.answer(clock.monotonic(), clock.monotonic() + PATIENT)
    kafka.error = None
    assert question.answer(clock.monotonic(), clock.monotonic() + PATIENT) == 2
    assert question.answer(clock.monotonic(), clock.monotonic() + PATIENT) == 3


def test_a_caller_waits_until_its_deadline_and_the_answer_is_there_for_the_next(
    question: Question[int], kafka: SlowKafka, clock: JumpingClock
) -> None:
    since = clock.monotonic()
    with pytest.raises(NotReady, match="has not answered yet"):
        question.answer(since, since + 0.05)
    assert clock.monotonic() - since < PATIENT / 2
    kafka.answering.set()
    assert question.answer(since, since + PATIENT) == 1


def test_a_caller_that_can_do_without_keeps_most_of_its_time(
    question: Question[int], kafka: SlowKafka, clock: JumpingClock
) -> None:
    since = clock.monotonic()
    with pytest.raises(NotReady):
        question.answer(since, since + 0.9, needed=False)
    assert clock.monotonic() - since < 0.8
    clock.ahead = 1.0
    began = clock.monotonic()
    with pytest.raises(NotReady):  # the question is an old one
        question.answer(since, began + 3 * PATIENT, needed=False)
    assert clock.monotonic() - began < PATIENT / 2
    assert kafka.asked == 1
