"""A transaction that does not end blocks the records behind it: that is logged once, with the commands that help."""

import subprocess
from collections.abc import Callable
from itertools import takewhile
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Partition
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs
from tests.system.bench import Bench, until
from tests.system.raw_transactions import RawTransactions

from localkafka.fixtures import OwnBroker
from localkafka.jars import kafka_jars
from localkafka.java import find_java
from streamtable import Kafka
from streamtable.base.ports import ClusterClient, TopicDescription
from streamtable.base.transactions import commands
from streamtable.base.types import TopicPartition
from streamtable.codec.plain import Long
from streamtable.errors import TransactionPending
from streamtable.graph.group import Group
from streamtable.observe import Metrics, metrics_page

TIMEOUT = 1.0


class Held(NamedTuple):
    """An open transaction, and the position that it blocks.

    Attributes:
        place: The partition where it has begun.
        offset: The offset of its first record there; None if it does not matter.
        producer: The producer of the transaction.
    """

    place: TopicPartition
    offset: int | None
    producer: Producer


@pytest.fixture
def group(bench: Bench) -> Group[str, int]:
    made = bench.counting()
    bench.send(bench.name("in"), ("a", "x"), ("a", "x"))
    return made


def open_transaction(bench: Bench) -> Producer:
    """Open a transaction of another program, with a timeout of ten minutes."""
    producer = Producer(
        {
            "bootstrap.servers": bench.kafka.bootstrap_servers,
            "transactional.id": bench.name("other"),
            "transaction.timeout.ms": 600_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    return producer


def in_the_input(bench: Bench, group: Group[str, int]) -> Held:
    """Behind the two records that are there, with one more behind it."""
    del group
    producer = open_transaction(bench)
    producer.produce(bench.name("in"), "y", "b", 0)
    producer.flush(60)
    bench.send(bench.name("in"), ("a", "x"))
    return Held(TopicPartition(bench.name("in"), 0), 2, producer)


def in_the_changelog(bench: Bench, group: Group[str, int]) -> Held:
    """Before the last change that the group has committed, so that a new copy of the table cannot be completed."""
    bench.work_off(group)
    producer = open_transaction(bench)
    offsets: list[Any] = []  # behind a marker that comes a moment after its commit
    producer.produce(
        group.table.name, Long().encode(7), "other", 0, lambda _, sent: offsets.append(sent.offset())
    )
    producer.flush(60)
    bench.send(bench.name("in"), ("a", "x"))
    bench.work_off(group)
    return Held(TopicPartition(group.table.name, 0), offsets[0], producer)


def in_the_committed_offsets(bench: Bench, group: Group[str, int]) -> Held:
    """Leave a transaction open, as when the markers of a group's last transaction were lost."""
    bench.work_off(group)
    bench.send(bench.name("in"), ("a", "x"))
    place = TopicPartition(bench.name("in"), 0)
    committed = bench.commits(group)[place]
    producer = open_transaction(bench)
    admin = bench.kafka.admin()
    producer.send_offsets_to_transaction(
        [Partition(*place, committed.next_offset, committed.metadata)],
        admin.membership_of_nobody(group.name).metadata,
        60,
    )
    offsets = admin.offsets_partition(group.name)
    admin.close()
    assert offsets is not None
    return Held(offsets, None, producer)


@pytest.mark.parametrize("hold", [in_the_input, in_the_changelog, in_the_committed_offsets])
def test_a_transaction_that_does_not_end_is_reported_once_until_it_ends(
    hold: Callable[[Bench, Group[str, int]], Held], bench: Bench, group: Group[str, int]
) -> None:
    held = hold(bench, group)
    registry = CollectorRegistry()
    with (
        capture_logs() as logged,
        bench.run(
            group,
            state="new",
            metrics=Metrics.register(registry),
            hanging_transaction_timeout=TIMEOUT,
        ) as running,
    ):
        until(lambda: "a transaction that does not end" in running.processor.not_ready, "it is not ready", 30)
        assert str(held.place) in running.processor.not_ready
        gauge = f'streamtable_hanging_transaction_seconds{{group="{group.name}"'
        assert gauge in metrics_page(registry).decode()
        held.producer.abort_transaction(60)
        bench.wait_handled(group, running)
        until(lambda: any(line["event"] == "transaction has ended" for line in logged), "the end is logged")
        assert gauge not in metrics_page(registry).decode()
    # Until it has ended; on a busy machine a transaction of the group itself may take as long afterwards.
    said = list(takewhile(lambda line: line["event"] != "transaction has ended", logged))
    (line,) = (line for line in said if line["event"].startswith("partitions wait for a transaction"))
    ((place, offset),) = line["partitions"].items()
    assert place == str(held.place)
    assert offset == held.offset or held.offset is None
    assert sum(line["event"] == "recovery waits" for line in logged) <= 2  # no line for each question
    assert bench.table(group) == {"a": 3}


def test_the_commands_in_the_log_show_the_transaction_and_end_it(
    bench: Bench, group: Group[str, int]
) -> None:
    held = in_the_input(bench, group)
    assert held.offset is not None
    show, abort = commands(bench.kafka.bootstrap_servers, held.place, held.offset)
    table = [line.split() for line in kafka_transactions(show).splitlines()]
    starts = [dict(zip(table[0], row, strict=True))["CurrentTransactionStartOffset"] for row in table[1:]]
    assert starts.count(str(held.offset)) == 1
    kafka_transactions(abort)
    bench.work_off(group)
    assert bench.table(group) == {"a": 3}


def test_only_the_next_transaction_ends_offsets_whose_marker_is_lost_and_decides_again(
    own_broker: OwnBroker,
) -> None:
    """Why the library does not abort it: without verification, a late request has the same effect as a lost marker."""
    broker = own_broker({"transaction.partition.verification.enable": "false"})
    kafka = Kafka(broker.bootstrap_servers, admin_timeout=30)
    first, cluster = kafka.transactional_producer("first"), kafka.cluster()
    first.open(60)  # there is a coordinator from now on
    first.close()
    cluster.create_topics([TopicDescription(name, 1, 1, {}) for name in ("in", "other")])
    for group, commit, expected in (("kept", True, 7), ("taken-back", False, 1)):
        with RawTransactions(broker.bootstrap_servers, f"{group}-i") as producer:
            left = Left(cluster, group, producer)
            until(lambda left=left: left.committed() is None, "the group has a coordinator")  # type: ignore[misc]  # bound now
            producer.open()
            producer.add_offsets(group)
            left.commit(1)
            producer.end(commit=True)
            until(lambda left=left: left.committed() == 1, "the transaction is over")  # type: ignore[misc]  # bound now
            left.commit(7)
            until(left.pending, "the marker is missing")
            producer.open()  # as a restarted processor does
            assert left.pending()
            producer.add_offsets(group)
            producer.commit_offset(group, TopicPartition("other", 0), 3)
            producer.end(commit=commit)
            until(lambda left=left, expected=expected: left.committed() == expected, "both have ended")  # type: ignore[misc]  # bound now
    cluster.close()


class Left(NamedTuple):
    """The committed offset of a group, which may be pending."""

    cluster: ClusterClient
    group: str
    producer: RawTransactions

    def commit(self, offset: int) -> None:
        self.producer.commit_offset(self.group, TopicPartition("in", 0), offset)

    def committed(self) -> int | None:
        (found,) = self.cluster.stable_offsets(self.group, [TopicPartition("in", 0)]).values()
        return found.next_offset if found else None

    def pending(self) -> bool:
        try:
            self.committed()
        except TransactionPending:
            return True
        return False


def kafka_transactions(command: str) -> str:
    """Run what `kafka-transactions.sh` would run, and return what it prints."""
    script, *arguments = command.split()
    assert script == "kafka-transactions.sh"
    tool = ["-cp", f"{kafka_jars()}/*", "org.apache.kafka.tools.TransactionsCommand"]
    done = subprocess.run(
        [str(find_java()), *tool, *arguments], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout
