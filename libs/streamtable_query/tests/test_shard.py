"""A member of a shared view, on a Kafka in memory."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from streamtable import Codec, String, Table
from streamtable.base.clock import SystemClock
from streamtable.base.ports import ClusterClient
from streamtable.errors import NotReady
from streamtable.tables.retention import remove_old_state
from streamtable_query import shard as shard_module
from streamtable_query.shard import Shard
from streamtable_testing.log import VirtualKafka

START_SECONDS, CLEAN_SECONDS, TOPIC_SECONDS = 4.0, 31.0, 6.0
PATIENT = 30.0


class JumpingClock(SystemClock):
    """The system's clock, which a test puts forward."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class Members:
    """The cluster, whose coordinator does not list this member while `joined` is False."""

    def __init__(self, kafka: VirtualKafka) -> None:
        self._cluster, self.joined = kafka.cluster(), True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def group_members(self, group: str) -> list[str]:
        return self._cluster.group_members(group) if self.joined else ["its former session"]


class Bench:
    """Shards of tables, each of one partition, with a common folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, JumpingClock()
        self.kafka = VirtualKafka(self.clock)
        self.members = Members(self.kafka)
        self.cleaned = threading.Event()

    def admin(self) -> ClusterClient:
        return self.members

    def group_consumer(self, group: str, instance: str) -> object:
        return self.kafka.group_consumer(group, instance)

    def table_reader(self, name: str) -> object:
        return self.kafka.table_reader(name)

    def fill(self, table: str, **rows: str) -> None:
        self.kafka.create_topic(table, 1, compacted=True)
        for key, value in rows.items():
            self.kafka.append(table, key.encode(), value.encode(), partition=0)

    @contextmanager
    def shard(self, table: str, value: Codec[str] | None = None) -> Iterator[Shard]:
        made: Any = Shard
        of = Table(table, String(), value or String())
        with made(self, of, f"readers-{table}", "m", 1, self.folder, 8 << 20, self.clock) as shard:
            yield shard

    def wait_ready(self, shard: Shard) -> None:
        self.clock.ahead += START_SECONDS
        self.wait(lambda: not shard.not_ready)

    def wait_cleaned(self) -> None:
        """Wait until a shard has removed what it takes for unused."""
        self.cleaned.clear()
        self.clock.ahead += CLEAN_SECONDS
        self.wait(self.cleaned.is_set)

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = SystemClock().monotonic() + PATIENT
        while not condition():
            assert SystemClock().monotonic() < deadline
            SystemClock().sleep(0.02)

    def topic_id(self, shard: Shard, table: str) -> str:
        with suppress(NotReady):
            return shard.topic_id(table)
        return ""

    @property
    def on_disk(self) -> set[str]:
        return {path.parent.parent.name for path in self.folder.glob("*/*/rows")}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench(tmp_path)

    def removed(*args: Any) -> None:
        remove_old_state(*args)
        bench.cleaned.set()

    monkeypatch.setattr(shard_module, "remove_old_state", removed)
    return bench


def test_a_member_that_has_not_joined_yet_keeps_the_replicas_on_its_disk(bench: Bench) -> None:
    bench.fill("orders", alice="1")
    with bench.shard("orders") as shard:
        bench.wait_ready(shard)
    bench.members.joined = False
    with bench.shard("orders") as shard:
        bench.wait_cleaned()
        assert shard.not_ready == "it is joining the other members"
    assert bench.on_disk == {"orders"}


def test_a_member_keeps_the_replicas_of_another_table_in_the_same_folder(bench: Bench) -> None:
    for table in ("orders", "users"):
        bench.fill(table, alice="1")
    with bench.shard("orders") as shard:
        with bench.shard("users") as other:
            bench.wait_ready(shard)
            bench.wait_ready(other)
        bench.wait_cleaned()
        bench.wait_cleaned()
    assert bench.on_disk == {"orders", "users"}


class Prefixed(String):
    """Texts behind a prefix, which producers may write into a header."""

    prefix_header = "begins"


def test_rows_are_kept_with_the_prefix_that_stands_in_a_header_of_their_record(bench: Bench) -> None:
    bench.fill("orders")
    bench.kafka.append("orders", b"alice", b"1", partition=0, headers=[("begins", b"#")])
    with bench.shard("orders", Prefixed()) as shard:
        bench.wait_ready(shard)
        assert shard.get("orders", 0, [b"alice"], PATIENT).values == [b"#1"]


def test_a_table_whose_topic_was_created_again_is_loaded_again(bench: Bench) -> None:
    bench.fill("orders", alice="old", bob="old")
    with bench.shard("orders") as shard:
        bench.wait_ready(shard)
        former = shard.topic_id("orders")
        bench.kafka.delete_topic("orders")
        bench.fill("orders", bob="new", carol="new", dave="new")
        bench.clock.ahead += TOPIC_SECONDS
        bench.wait(lambda: bench.topic_id(shard, "orders") not in {"", former})
        assert shard.topic_id("orders") == bench.kafka.cluster().topic_ids(["orders"])["orders"]
        bench.wait_ready(shard)
        assert shard.get("orders", 0, [b"alice", b"bob"], PATIENT).values == [None, b"new"]
