"""The dead letters of a group on a real broker: found by name, bounded in memory, and replayed by one program at a time."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.waiting import wait_until
from streamtable import Kafka
from streamtable.base.deadletter import ORIGIN_OFFSET, ORIGIN_PARTITION, ORIGIN_TOPIC
from streamtable.errors import RetryLater, StreamtableError
from streamtable_admin.cluster import Cluster, connect
from streamtable_admin.deadletter_log import DeadLetterLog, ReplayTimeouts
from streamtable_admin.errors import NoSuchDeadLetter, NoSuchTopic, Refused
from streamtable_admin.reading import ReadLimits
from streamtable_admin.records import collect

TIMEOUTS = ReplayTimeouts(open=60.0, commit=60.0)


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with connect(Kafka(broker.bootstrap_servers), timeout=20) as found:
        yield found


@pytest.fixture
def group(broker: Broker, topics: Topics) -> str:
    """A group with three dead letters in one partition."""
    letters = topics.create("g-dead-letters", partitions=1)
    topics.create("g-retry", partitions=1)
    producer = Producer({"enable.idempotence": True, "bootstrap.servers": broker.bootstrap_servers})
    for number in range(3):
        headers = {ORIGIN_TOPIC: b"in", ORIGIN_PARTITION: b"0", ORIGIN_OFFSET: b"%d" % number}
        producer.produce(letters, b"value %d" % number, b"k", headers=list(headers.items()))
    assert producer.flush(30) == 0
    return letters.removesuffix("-dead-letters")


def wait_ended(cluster: Cluster, group: str) -> None:
    """Wait until the transaction of a replay has its markers, which come a moment after its commit."""
    places = [place for what in ("retry", "dead-letters") for place in cluster.partitions(f"{group}-{what}")]

    def ended() -> bool:
        marks = cluster.admin.watermarks(places)
        return cluster.admin.stable_ends(places) == {place: mark.high for place, mark in marks.items()}

    wait_until(ended)


def retried(cluster: Cluster, group: str) -> list[bytes | None]:
    wait_ended(cluster, group)
    (place,) = cluster.partitions(f"{group}-retry")
    (mark,) = cluster.admin.watermarks([place]).values()
    found = collect(cluster, {place: mark.low}, {place: mark.high}, keep=100)
    return [record.value for record in found[place]]


def test_letters_are_found_by_name_with_the_markers_behind_them(cluster: Cluster, group: str) -> None:
    log = DeadLetterLog(cluster, group)
    assert [letter.name for letter in log.read()] == ["0:0", "0:1", "0:2"]
    done = log.replay(
        lambda: log.named(["0:1"], complete=True), again=False, now=time.time, timeouts=TIMEOUTS
    )
    assert [letter.name for letter in done.sent] == ["0:1"]
    wait_ended(cluster, group)
    assert [letter.replayed is not None for letter in log.read()] == [False, True, False]
    (letter,) = log.named(["0:1"])
    assert letter.replayed is not None
    assert retried(cluster, group) == [b"value 1"]


def test_a_letter_that_is_not_there_is_named_and_a_malformed_name_refused(
    cluster: Cluster, group: str
) -> None:
    log = DeadLetterLog(cluster, group)
    with pytest.raises(NoSuchDeadLetter, match="has no dead letter 0:7"):
        log.named(["0:1", "0:7"])
    with pytest.raises(Refused, match="PARTITION:OFFSET"):
        log.named(["x"])
    with pytest.raises(NoSuchTopic):
        DeadLetterLog(cluster, "a" * 249).replay(log.read, again=False, now=time.time)


def test_a_replay_that_begins_ends_another_so_that_each_letter_goes_out_once(
    broker: Broker, cluster: Cluster, group: str
) -> None:
    log = DeadLetterLog(cluster, group)
    second: list[str] = []

    def overtaken(step: str) -> None:
        if step == "flushed" and not second:
            with connect(Kafka(broker.bootstrap_servers), timeout=20, client_name="other") as other:
                # It would read for ten seconds, until the broker aborts the first transaction, if it did not do that itself.
                theirs = DeadLetterLog(other, group, limits=ReadLimits(total=8.0))
                done = theirs.replay(
                    lambda: theirs.read(complete=True), again=False, now=time.time, timeouts=TIMEOUTS
                )
                second.extend(letter.name for letter in done.sent)

    with pytest.raises(StreamtableError):
        log.replay(
            lambda: log.read(complete=True), again=False, now=time.time, reached=overtaken, timeouts=TIMEOUTS
        )
    assert second == ["0:0", "0:1", "0:2"]
    assert retried(cluster, group) == [b"value 0", b"value 1", b"value 2"]
    assert all(letter.replayed is not None for letter in log.read())


def test_many_letters_are_replayed_to_a_topic_with_a_small_limit(
    broker: Broker, cluster: Cluster, topics: Topics
) -> None:
    letters = topics.create("g-dead-letters", partitions=1)
    topics.create("g-retry", partitions=1, config={"max.message.bytes": "10000"})
    producer = Producer({"enable.idempotence": True, "bootstrap.servers": broker.bootstrap_servers})
    for number in range(50):
        headers = {ORIGIN_TOPIC: b"in", ORIGIN_PARTITION: b"0", ORIGIN_OFFSET: b"%d" % number}
        producer.produce(letters, os.urandom(2_000), b"k", headers=list(headers.items()))
    assert producer.flush(30) == 0
    log = DeadLetterLog(cluster, letters.removesuffix("-dead-letters"))
    done = log.replay(lambda: log.read(complete=True), again=False, now=time.time, timeouts=TIMEOUTS)
    assert len(done.sent) == 50


def test_a_list_is_bounded_and_a_complete_read_fails_rather_than_miss_a_letter(
    cluster: Cluster, group: str
) -> None:
    assert [letter.name for letter in DeadLetterLog(cluster, group, newest=2).read()] == ["0:1", "0:2"]
    small = DeadLetterLog(cluster, group, limits=ReadLimits(bytes_max=1500))
    assert [letter.name for letter in small.read()] == ["0:2"]
    with pytest.raises(RetryLater, match="kept in memory"):
        small.read(complete=True)


def test_the_program_of_the_readme_lists_and_replays_dead_letters(
    broker: Broker, cluster: Cluster, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    program = readme.split("```python\n")[1].split("```")[0]
    program = program.replace("localhost:9092", broker.bootstrap_servers).replace("click-count", group)
    exec(compile(program, "README.md", "exec"), {})
    assert capsys.readouterr().out.splitlines()[-1] == "3 dead letters were replayed"
    assert len(retried(cluster, group)) == 3
