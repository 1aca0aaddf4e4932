"""Findings about groups that fall behind: partition, lag, owner and remedy."""

import threading
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Partition
from libs.streamtable_cli.tests.bench import NUMBER, Cli, World, until

from streamtable import Group, Input, Long, Persist, Stream, String
from streamtable.base.types import TopicPartition

pytestmark = pytest.mark.usefixtures("elsewhere")


def problems(ran: Any, subject: str) -> list[tuple[str, str, str]]:
    found = [each for each in ran.json if each["subject"] == subject and each["level"] != "ok"]
    return [(each["level"], each["fact"], each["advice"]) for each in found]


def test_a_stalled_partition_is_named_with_its_process(cli: Cli, world: World) -> None:
    made = world.group(partitions=2)
    entered, go = threading.Event(), threading.Event()

    def stuck(ctx: Any, number: int) -> None:
        entered.set()
        go.wait(60)
        ctx.set(number)

    stream = Stream(world.topics.name("in"), String(), NUMBER)
    group = Group(made.name, Input(stream, stuck), Persist(Long()))
    with world.running(group) as processor:
        until(lambda: processor.ready, "it works")
        world.send(stream.name, *[(b"k", NUMBER.encode(n)) for n in range(3)], partition=1)
        assert entered.wait(60)
        ran = cli("doctor", "--group", group.name, "--over", "0.5", "--json")
        go.set()
    assert ran.code == 1
    ((level, fact, advice),) = problems(ran, f"group {group.name}")
    assert level == "problem"
    assert fact.startswith(f"{stream.name} 1: 3 records to do, and nothing committed for ")
    assert " at 127.0.0.1" in fact
    assert "log of that process" in advice


def test_lag_without_a_member_is_a_problem(cli: Cli, world: World) -> None:
    group = world.group(partitions=1)
    stream = group.inputs[0].stream.name
    world.commit(group.name, {TopicPartition(stream, 0): 0})
    world.send(stream, (b"k", NUMBER.encode(1)), (b"k", NUMBER.encode(2)))
    ran = cli("doctor", "--group", group.name, "--over", "0.1", "--json")
    ((level, fact, advice),) = problems(ran, f"group {group.name}")
    assert (ran.code, level) == (1, "problem")
    assert fact.endswith("0 members, lag 2")
    assert "start it" in advice


def test_a_transaction_that_stays_open_is_reported(cli: Cli, world: World) -> None:
    group = world.group(partitions=1)
    stream = group.inputs[0].stream.name
    world.commit(group.name, {TopicPartition(stream, 0): 0})
    outbox = world.kafka.transactional_producer(f"{world.topics.prefix}-open", transaction_seconds=300)
    outbox.open(60)
    outbox.begin()
    outbox.produce(stream, b"k", NUMBER.encode(1))
    outbox.flush(60)
    ran = cli("doctor", "--group", group.name, "--over", "0.3", "--json")
    outbox.close()
    (found,) = [each for each in problems(ran, f"group {group.name}") if "transaction" in each[1]]
    assert found[0] == "warning"
    assert found[1].startswith(f"{stream} 0: a transaction has been open for ")
    assert f"abort --topic {stream} --partition 0 --start-offset 0" in found[2]


def test_a_transaction_in_the_changelog_or_the_committed_offsets_is_found_too(cli: Cli, world: World) -> None:
    group = world.group(partitions=1)
    place = TopicPartition(group.inputs[0].stream.name, 0)
    world.commit(group.name, {place: 0})
    producer = Producer(
        {
            "bootstrap.servers": world.kafka.bootstrap_servers,
            "transactional.id": f"{world.topics.prefix}-open",
            "transaction.timeout.ms": 600_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(group.table.name, NUMBER.encode(1), b"k")
    producer.flush(60)
    membership = world.kafka.admin().membership_of_nobody(group.name)
    producer.send_offsets_to_transaction([Partition(*place, 1)], membership.metadata, 60)
    ran = cli("doctor", "--group", group.name, "--over", "0.1", "--json")
    producer.abort_transaction(60)
    found = [each for each in problems(ran, f"group {group.name}") if each[1].endswith(("recover", "read"))]
    table, offsets = sorted(found, key=lambda each: each[0], reverse=True)
    assert (table[0], offsets[0]) == ("warning", "problem")
    assert table[1].startswith(f"{group.table.name} 0: a transaction has been open for ")
    assert offsets[1].startswith("a transaction with its committed offsets has been open for ")
    assert "abort --topic __consumer_offsets --partition " in offsets[2]
