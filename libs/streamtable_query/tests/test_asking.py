"""Questions to a process without a network: what is asked, and which answers count."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from streamtable import Ack, String, Table
from streamtable.base.clock import SystemClock
from streamtable.base.ports import TopicInfo
from streamtable.base.types import TopicPartition
from streamtable.errors import NotReady, RetryLater
from streamtable.kafka import GroupDescription, GroupMember
from streamtable_query.answers import Asking
from streamtable_query.asking import TableQueries
from streamtable_query.owners import PartitionOwners
from streamtable_query.server import _Answers, _Refused
from streamtable_query.sources import FoundRows, Page

OFFSET = 500
"""All processes are at this offset."""


MAX_AGE, PATIENT = 5.0, 10.0


class JumpingClock(SystemClock):
    """The system's clock, which a test puts forward."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class Cluster:
    """Has the topic of the table, and a group of one process that has all partitions."""

    def __init__(self) -> None:
        self.topic = TopicInfo("t", 4, "id-1", True, 86_400_000, 1 << 20)
        self.away = False
        self.answering = threading.Event()
        self.answering.set()

    def recreate(self, partitions: int) -> None:
        self.topic = replace(self.topic, partitions=partitions, topic_id="id-2")

    def topics(self, names: Iterable[str]) -> Mapping[str, TopicInfo]:
        self._wait()
        return {"t": self.topic}

    def describe_groups(self, names: Iterable[str]) -> Mapping[str, GroupDescription]:
        self._wait()
        places = tuple(TopicPartition("in", number) for number in range(self.topic.partitions))
        member = GroupMember("m", "streamtable-query@a:1", "host", "", places)
        return dict.fromkeys(
            names, GroupDescription("g", "stable", "consumer", "range", "broker:1", (member,))
        )

    def _wait(self) -> None:
        self.answering.wait(PATIENT)
        if self.away:
            raise RetryLater("Kafka does not answer")

    def close(self) -> None: ...


class Rows:
    """The rows of a process, by partition and encoded key; a `RowSource`."""

    group = "g"

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.rows = cluster, dict[tuple[int, bytes], bytes]()
        self.kind: Any = "task"
        self.loading, self.asked = False, threading.Event()
        self.page_rows = 1

    def topic_id(self, table: str) -> str:
        self.asked.set()
        if self.loading:
            raise NotReady("it is loading")
        return self.cluster.topic.topic_id

    def get(self, table: str, partition: int, keys: Iterable[bytes], stale_ok: float | None) -> FoundRows:
        values = [self.rows.get((partition, key)) for key in keys]
        # As of a task: the offset comes with the rows.
        return FoundRows(values, OFFSET if values else 0, 0.1, self.kind)

    def page(
        self, table: str, partition: int, start: bytes | None, end: bytes | None, stale_ok: float | None
    ) -> Page:
        found = sorted(
            (key, row) for (at, key), row in self.rows.items() if at == partition and key >= (start or b"")
        )
        return Page(found[: self.page_rows], len(found) > self.page_rows, OFFSET, 0.1, self.kind)


class Refused(grpc.RpcError):
    def __init__(self, refused: _Refused) -> None:
        self._refused = refused

    def code(self) -> grpc.StatusCode:
        return self._refused.code

    def details(self) -> str:
        return str(self._refused)

    def trailing_metadata(self) -> Any:
        return self._refused.metadata


class Channels:
    """Connections to a process that is in this one."""

    metadata = ()

    def __init__(self, rows: Rows) -> None:
        self._answers = _Answers({"g": rows})
        self.seconds = 0.0  # what the last call may take

    def stub(self, address: object) -> object:
        return SimpleNamespace(Get=self._calls(self._answers.get), Range=self._calls(self._answers.range))

    def _calls(self, answer: Callable[[Any], Any]) -> Callable[..., Any]:
        def call(request: Any, timeout: float, metadata: object) -> Any:
            self.seconds = timeout
            try:
                return answer(request)
            except _Refused as refused:
                raise Refused(refused) from None

        return call

    def answered(self) -> None: ...

    def close(self) -> None: ...


class Bench:
    def __init__(self) -> None:
        self.clock, self.cluster = JumpingClock(), Cluster()
        self.rows = Rows(self.cluster)
        self.channels = Channels(self.rows)

    def queries(self, near: Rows | None = None, limits: Asking | None = None) -> TableQueries[str, str]:
        made: Any = TableQueries
        return made(  # type: ignore[no-any-return]
            SimpleNamespace(admin=lambda: self.cluster),
            Table("t", String(), String()),
            "g",
            "g",
            lambda coordinator, clock: PartitionOwners("g", "in", coordinator, clock),
            near,
            limits or Asking(PATIENT, MAX_AGE, None),
            copies=near is not None,
            channels=self.channels,
            clock=self.clock,
        )


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def queries(bench: Bench) -> Iterator[TableQueries[str, str]]:
    with bench.queries() as queries:
        yield queries


def test_access_can_be_checked_when_answers_must_have_reached_an_offset(
    queries: TableQueries[str, str],
) -> None:
    assert queries.topic.partitions == 4
    queries.topic.hold({0: OFFSET}, "id-1")
    queries.check_access(0.1)


def test_copies_of_this_process_of_an_earlier_topic_do_not_answer(bench: Bench) -> None:
    near = Rows(Cluster())
    with bench.queries(near) as queries:
        partition = queries.get("alice").partition
        near.rows[partition, b"alice"] = b"old"
        assert queries.get("alice").value == "old"
        bench.cluster.recreate(4)
        bench.rows.rows[partition, b"alice"] = b"new"
        bench.clock.ahead += MAX_AGE + 1
        assert queries.get("alice").value == "new"
        assert list(queries.range("alice", "b")) == [("alice", "new")]
        near.cluster.recreate(4)
        assert queries.get("alice").value == "old"


@pytest.mark.parametrize("partitions", [4, 5])
def test_a_call_that_waits_while_the_table_is_created_again_asks_no_partition_of_the_former_count(
    bench: Bench, queries: TableQueries[str, str], partitions: int
) -> None:
    bench.rows.loading = True
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(queries.get, "alice")
        assert bench.rows.asked.wait(PATIENT)
        bench.cluster.recreate(partitions)
        bench.clock.ahead += MAX_AGE + 0.1
        bench.rows.loading = False
        if partitions == 4:
            assert call.result().value is None
        else:
            with pytest.raises(NotReady, match="was created again with 5 partitions: ask again"):
                call.result()


def test_a_range_of_a_table_that_is_created_again_meanwhile_mixes_no_rows(
    bench: Bench, queries: TableQueries[str, str]
) -> None:
    bench.rows.rows = {(0, b"a"): b"1", (0, b"b"): b"1", (0, b"c"): b"1"}
    read = queries.range()
    assert next(read) == ("a", "1")
    bench.cluster.recreate(4)
    bench.clock.ahead += MAX_AGE + 0.1
    with pytest.raises(NotReady, match="created again while it was read: read the range again"):
        list(read)


def test_a_task_that_the_coordinator_has_not_confirmed_for_longer_than_a_call_allows_does_not_answer(
    bench: Bench, queries: TableQueries[str, str]
) -> None:
    assert queries.get("alice", stale_ok=30).value is None
    bench.cluster.away = True
    bench.clock.ahead += 20
    assert 20 <= queries.get("alice", stale_ok=30).age_seconds < 30
    bench.clock.ahead += 20
    with pytest.raises(NotReady, match="whether a:1 still has the partition is not known"):
        queries.get("alice", stale_ok=30, timeout=0.1)
    bench.rows.kind = "standby"
    assert queries.get("alice", stale_ok=30).source == "standby"


def test_while_kafka_is_silent_a_copy_here_answers(bench: Bench) -> None:
    with bench.queries(bench.rows) as queries:
        assert queries.get("alice").source == "local"
        bench.cluster.answering.clear()
        bench.clock.ahead += MAX_AGE + 1
        began = bench.clock.monotonic()
        assert queries.get("alice", timeout=0.3).source == "local"
        assert bench.clock.monotonic() - began < PATIENT / 2
        bench.cluster.answering.set()


def test_while_the_coordinator_is_silent_copies_are_asked_well_before_the_deadline(
    bench: Bench, queries: TableQueries[str, str]
) -> None:
    queries.get("alice")
    bench.rows.kind = "standby"
    bench.cluster.answering.clear()
    bench.clock.ahead += MAX_AGE + 1
    assert queries.get("alice", timeout=2, stale_ok=30).source == "standby"
    assert bench.channels.seconds > 0.3
    bench.cluster.answering.set()


def test_a_call_that_waits_for_kafka_ends_in_time(bench: Bench, queries: TableQueries[str, str]) -> None:
    bench.cluster.answering.clear()
    began = bench.clock.monotonic()
    with pytest.raises(NotReady, match="the topic 't' is not known yet: Kafka has not answered"):
        queries.get("alice", timeout=0.1)
    assert bench.clock.monotonic() - began < PATIENT / 2
    bench.cluster.away = True
    bench.cluster.answering.set()
    with pytest.raises(NotReady, match="the topic 't' is not known yet: Kafka does not answer"):
        queries.get("alice")


def test_an_offset_of_the_former_topic_holds_up_no_answer_of_the_next(
    bench: Bench, queries: TableQueries[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(ack: Ack, ask: Asking) -> int:
        bench.cluster.recreate(4)
        bench.clock.ahead += MAX_AGE + 0.1
        return OFFSET

    monkeypatch.setattr(queries, "_end_of", ended)
    with pytest.raises(NotReady, match="was deleted and created again"):
        queries.wait_for(Ack("in", 0, 7), PATIENT)
    assert queries.topic.held(0) == 0
