"""User-status as processes that are killed in the middle of its work, and the offsets and rows committed then."""

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from contracts.records import UserStatus, UserStatusUpdate
from localkafka.broker import Broker
from localkafka.topics import create_topics, delete_topics
from localkafka.waiting import Deadline
from servicekit_testing import Process
from streamtable import Emitter, Kafka, Stream, String
from streamtable.base.ports import Codec
from user_status.domain import is_later, row_of
from user_status.topics import CHANGES, UPDATES, click_counts, statuses

PARTITIONS = 3
CLICKS = click_counts("click-count")
GROUP = statuses("user-status")
PLAIN = (UPDATES.name, CHANGES.name, GROUP.dead_letters, GROUP.retry)
COMPACTED = (GROUP.table.name, CLICKS.name)


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = Deadline(seconds)
    while not condition():
        assert not end.passed(), "it did not come true in time"
        time.sleep(0.05)


class World:
    """The topics of user-status, a processor that can be killed, and all that is committed."""

    def __init__(self, broker: Broker, folder: Path, stack: ExitStack) -> None:
        self._servers = broker.bootstrap_servers
        self._folder = folder
        self._stack = stack

    def start(self, state: str) -> Process:
        environment = {
            "STREAMTABLE_BOOTSTRAP_SERVERS": self._servers,
            "STREAMTABLE_INSTANCE_ID": "killed",
            "STREAMTABLE_STATE_DIR": str(self._folder / state),
            "STREAMTABLE_COMMIT_INTERVAL": "0.05",
        }
        process = Process("user_status.main", ["processor"], environment)
        self._stack.callback(process.close)
        return process

    def emit(self, updates: list[UserStatusUpdate]) -> None:
        with Emitter(UPDATES, Kafka(self._servers)) as emitter:
            for update in updates:
                emitter.emit(update["user_id"], update)

    def count(self, clicks: Mapping[str, int]) -> None:
        with Emitter(Stream(CLICKS.name, String(), CLICKS.value), Kafka(self._servers)) as emitter:
            for user, count in clicks.items():
                emitter.emit(user, count)

    def committed(self, topic: str, codec: Codec[Any]) -> dict[str, list[Any]]:
        """The committed values of each key, in order."""
        config: dict[str, Any] = {
            "bootstrap.servers": self._servers,
            "group.id": "-",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
        consumer = Consumer(config)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        found: dict[str, list[Any]] = defaultdict(list)
        ended: set[int | None] = set()
        while len(ended) < PARTITIONS:
            message = consumer.poll(20)
            assert message is not None, "the broker does not answer"
            if message.error() is not None:
                ended.add(message.partition())
                continue
            key, value = message.key(), message.value()
            found[String().decode(key)].append(codec.decode(value))  # type: ignore[arg-type] # bytes, as nothing decodes them
        consumer.close()
        return found

    def kept(self) -> dict[str, UserStatus]:
        rows = self.committed(GROUP.table.name, GROUP.table.value)
        return {user: versions[-1] for user, versions in rows.items()}


@pytest.fixture
def world(broker: Broker, tmp_path: Path) -> Iterator[World]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    topics = [NewTopic(name, PARTITIONS) for name in PLAIN]
    topics += [NewTopic(name, PARTITIONS, config={"cleanup.policy": "compact"}) for name in COMPACTED]
    create_topics(admin, topics)
    with ExitStack() as stack:
        yield World(broker, tmp_path, stack)
    delete_topics(admin, [topic.topic for topic in topics])
    for removed in admin.delete_consumer_groups([GROUP.name]).values():
        removed.exception(30)


def updates_of(chance: random.Random, count: int) -> list[UserStatusUpdate]:
    """Updates of 40 users in no order, with equal times and equal texts among them."""
    return [
        UserStatusUpdate(
            id=str(UUID(int=chance.getrandbits(128), version=4)),
            user_id=f"user-{chance.randrange(40)}",
            status=chance.choice(["at work", "at lunch", "gone"]),
            at=chance.randrange(30),
        )
        for _ in range(count)
    ]


def latest_of(updates: list[UserStatusUpdate]) -> dict[str, tuple[str, int, str]]:
    rows: dict[str, UserStatus] = {}
    for update in updates:
        if is_later(update, rows.get(update["user_id"])):
            rows[update["user_id"]] = row_of(update, None)
    return {user: (row["status"], row["at"], row["id"]) for user, row in rows.items()}


@pytest.mark.faults_long(
    "a processor is killed again and again, and loads its table each time: test_crash_rounds.py has a short round"
)
@pytest.mark.timeout(300)
def test_statuses_and_changes_are_right_although_the_processor_was_killed(world: World) -> None:
    chance = random.Random(7)
    clicks = {f"user-{n}": n for n in range(1, 40)}
    world.count(clicks)
    everything: list[UserStatusUpdate] = []
    # The third process has lost its disk; the fourth ends in order.
    for state in ("a", "a", "b", "b"):
        process = world.start(state)
        part = updates_of(chance, 1000)
        before = sum(map(len, world.committed(GROUP.table.name, GROUP.table.value).values()))
        world.emit(part)
        everything += part
        if len(everything) < 4000:
            wait_until(
                lambda before=before: (  # type: ignore[misc] # bound in the loop
                    sum(map(len, world.committed(GROUP.table.name, GROUP.table.value).values())) > before
                )
            )
            process.close()
    expected = latest_of(everything)

    def now() -> dict[str, tuple[str, int, str]]:
        return {user: (row["status"], row["at"], row["id"]) for user, row in world.kept().items()}

    wait_until(lambda: now() == expected)
    assert process.stop() == 0, process.output
    kept = world.kept()
    assert {user: row["clicks"] for user, row in kept.items()} == {user: clicks.get(user, 0) for user in kept}
    for user, changes in world.committed(CHANGES.name, CHANGES.value).items():
        # Each change begins where the one before ended: none is missing, none is there twice.
        assert [change["old"] for change in changes] == [None, *(change["new"] for change in changes[:-1])]
        assert all(change["old"] != change["new"] for change in changes)
        assert changes[-1]["new"] == kept[user]["status"]
    assert world.committed(GROUP.dead_letters, String()) == {}
