import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from localkafka.waiting import wait_until
from streamtable.base.types import Committed, NextOffset, TopicPartition
from streamtable.errors import NotReady, RetryLater
from streamtable.tables.offset_barrier import OffsetBarrier
from streamtable.views.read_your_writes import CommitWatcher

P0, P1 = TopicPartition("in", 0), TopicPartition("in", 1)


def until(true: Callable[[], object]) -> None:
    wait_until(true, every=0.002)


class Group:
    """A group whose commits a test sets, and that records the requests."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, Committed] = {}
        self.pending: set[TopicPartition] = set()
        self.asked: list[list[TopicPartition]] = []
        self.at_once = self.most_at_once = 0
        self.error: Exception | None = None

    def commit(self, place: TopicPartition, next_offset: int) -> Committed:
        self.committed[place] = Committed(NextOffset(next_offset), f"at {next_offset}")
        return self.committed[place]

    def stable_offsets(self, group: str, places: Iterable[TopicPartition]) -> Any:
        asked = list(places)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            self.asked.append(asked)
            if self.error is not None:
                raise self.error
            if self.pending & set(asked):
                raise RetryLater("a transaction is pending")
            return {place: self.committed.get(place) for place in asked}
        finally:
            self.at_once -= 1


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def commits(group: Group, clock: Any) -> Iterator[CommitWatcher]:
    cluster: Any = group
    made = CommitWatcher(lambda: cluster, clock)
    yield made
    made.close()


# ---- barrier -----------------------------------------------------------------------------------------------------------


def test_each_is_woken_when_its_own_place_has_come_as_far_as_it_needs() -> None:
    barrier: OffsetBarrier[str, str] = OffsetBarrier()
    with barrier.waiting("a", 5) as soon, barrier.waiting("a", 7) as later, barrier.waiting("b", 5) as other:
        barrier.arrived("a", 6, "six")
        assert (soon.result(0), later.done(), other.done()) == ("six", False, False)
        barrier.arrived("a", 7, "seven")
        assert (later.result(0), barrier.places()) == ("seven", ["b"])


def test_a_waiter_that_gives_up_leaves_nothing_behind() -> None:
    barrier: OffsetBarrier[str, str] = OffsetBarrier()
    with barrier.waiting("a", 5):
        assert barrier.places() == ["a"]
    assert barrier.places() == []
    barrier.arrived("a", 9, "nobody hears it")


def test_an_end_reaches_those_who_wait_and_those_who_come_later() -> None:
    barrier: OffsetBarrier[str, str] = OffsetBarrier()
    with barrier.waiting("a", 5) as waiting:
        barrier.end(NotReady("closed"))
        with pytest.raises(NotReady, match="closed"):
            waiting.result(0)
    with pytest.raises(NotReady, match="closed"), barrier.waiting("a", 1):
        pass


# ---- commits -----------------------------------------------------------------------------------------------------------


def test_what_is_committed_beyond_the_event_is_given_at_once(group: Group, commits: CommitWatcher) -> None:
    committed = group.commit(P0, 6)
    assert commits.wait("g", P0, 5, 10) == committed


def test_an_event_whose_own_offset_comes_next_is_not_committed(group: Group, commits: CommitWatcher) -> None:
    group.commit(P0, 5)
    with pytest.raises(NotReady, match=r"group 'g' is at offset 5 of in\[0\], not yet past the event"):
        commits.wait("g", P0, 5, 10)


def test_a_group_that_never_committed_is_asked_about_its_inputs(commits: CommitWatcher) -> None:
    with pytest.raises(
        NotReady, match=r"never committed an offset of in\[0\]: is that one of its inputs"
    ) as raised:
        commits.wait("g", P0, 5, 10)
    assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("in", 0, 5)


def test_silence_is_reported_with_its_reason(group: Group, commits: CommitWatcher) -> None:
    group.pending.add(P0)
    with pytest.raises(NotReady, match=r"not known \(a transaction is pending\), after 10 s"):
        commits.wait("g", P0, 5, 10)


def test_a_wait_of_no_time_asks_once(group: Group, commits: CommitWatcher) -> None:
    commits.start()
    committed = group.commit(P0, 6)
    for _ in range(2):
        assert commits.wait("g", P0, 5, 0) == committed
        assert asyncio.run(commits.wait_async("g", P0, 5, 0)) == committed
    with pytest.raises(NotReady, match=r"is at offset 6 of in\[0\], not yet past the event, after 0 s"):
        commits.wait("g", P0, 6, 0)


def test_an_answer_to_an_earlier_wait_does_not_say_that_the_group_is_behind(
    group: Group, commits: CommitWatcher
) -> None:
    group.commit(P0, 6)
    commits.wait("g", P0, 5, 10)
    commits.start()
    with commits._asking, pytest.raises(NotReady, match="what group 'g' has committed is not known"):
        commits.wait("g", P0, 5, 0.01)


def test_all_who_wait_share_one_question_at_a_time(group: Group, commits: CommitWatcher) -> None:
    commits.start()
    found: list[Committed] = []
    threads = [
        threading.Thread(target=lambda n=n: found.append(commits.wait("g", (P0, P1)[n % 2], n, 10)))
        for n in range(100)
    ]
    for thread in threads:
        thread.start()
    waiting = commits._barrier._waiting
    until(lambda: sum(map(len, list(waiting.values()))) == 100)  # each has begun to wait
    asked_before = len(group.asked)
    until(lambda: len(group.asked) > asked_before + 3)
    asked_before = len(group.asked)
    group.commit(P0, 100)
    group.commit(P1, 100)
    for thread in threads:
        thread.join(60)
    assert len(found) == 100
    assert group.most_at_once == 1
    assert len(group.asked) <= asked_before + 3
    assert sorted(group.asked[asked_before - 1]) == [P0, P1]


def test_kafka_is_not_asked_while_no_reader_waits(group: Group, commits: CommitWatcher) -> None:
    commits.start()
    group.commit(P0, 1)
    commits.wait("g", P0, 0, 5)
    until(lambda: not commits._barrier.places())
    asked = len(group.asked)
    threading.Event().wait(0.1)
    assert len(group.asked) <= asked + 1


def test_a_place_whose_transaction_hangs_does_not_keep_the_others_waiting(
    group: Group, commits: CommitWatcher
) -> None:
    commits.start()
    group.pending.add(P0)
    stuck = threading.Thread(target=lambda: _quietly(lambda: commits.wait("g", P0, 0, 10)))
    stuck.start()
    until(lambda: group.asked)
    group.commit(P1, 1)
    assert commits.wait("g", P1, 0, 5).next_offset == 1
    commits.close()
    stuck.join(60)


def _quietly(doing: Callable[[], object]) -> None:
    try:
        doing()
    except NotReady:
        return


def test_a_place_that_hung_is_asked_for_again_after_a_while(
    group: Group, commits: CommitWatcher, clock: Any
) -> None:
    commits.start()
    group.pending.add(P0)
    found: list[Committed] = []
    waiting = threading.Thread(target=lambda: found.append(commits.wait("g", P0, 0, 10)))
    waiting.start()
    until(lambda: group.asked)
    group.pending.clear()
    group.commit(P0, 1)
    until(lambda: clock.sleep(0.1) or found)
    waiting.join(60)


def test_who_waits_is_woken_when_it_is_closed(commits: CommitWatcher) -> None:
    commits.start()
    closing = threading.Timer(0.05, commits.close)
    closing.start()
    with pytest.raises(NotReady, match="closed"):
        commits.wait("g", P0, 0, 10)
    closing.join()


def test_what_no_retry_can_mend_is_raised_in_each_waiter(group: Group, commits: CommitWatcher) -> None:
    commits.start()
    group.error = ValueError("a bug")
    with pytest.raises(ValueError, match="a bug"):
        commits.wait("g", P0, 0, 10)
    with pytest.raises(ValueError, match="a bug"):
        commits.wait("g", P0, 0, 10)
