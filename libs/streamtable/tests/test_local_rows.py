"""Two processors of a group on a real Kafka: each answers for its own partitions, also while these move."""

import threading
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from localkafka.broker import Broker
from localkafka.waiting import wait_until
from streamtable import (
    App,
    Context,
    Group,
    Input,
    Kafka,
    Long,
    PartitionNotAssigned,
    Persist,
    Processor,
    Stream,
    String,
)
from streamtable.errors import NotReady

pytestmark = pytest.mark.broker
WORDS = Stream("local-words", key=String(), value=String())
PARTITIONS, KEYS = 4, 40


def count(ctx: Context[str, int], word: str) -> None:
    del word
    ctx.set((ctx.value or 0) + 1)


COUNTS = Group("local-counts", Input(WORDS, count), Persist(Long()))


def rows_of(processor: Processor) -> dict[str, int]:
    """The rows of a process; none while one of its partitions is on the way."""
    try:
        return dict(processor.range(COUNTS.table))
    except (PartitionNotAssigned, NotReady):
        return {}


def test_processors_answer_for_their_own_partitions_while_these_move(broker: Broker, tmp_path: Path) -> None:
    kafka = Kafka(broker.bootstrap_servers)
    keys = [f"user-{number}" for number in range(KEYS)]
    everything = dict.fromkeys(keys, 1)
    wrong: list[object] = []
    done = threading.Event()

    def ask(processor: Processor) -> None:
        """Ask from outside of the engine's threads, without a pause: an answer is right, or it is refused."""
        while not done.is_set():
            for key in keys:
                try:
                    value = processor.get(COUNTS.table, key).value
                except (PartitionNotAssigned, NotReady):
                    continue
                except Exception as error:  # noqa: BLE001 - shown in the end
                    wrong.append(error)
                    return
                if value not in {None, 1}:
                    wrong.append(value)

    with App(kafka, tmp_path / "one") as one, App(kafka, tmp_path / "two") as two:
        one.create_topics(COUNTS, partitions=PARTITIONS)
        with one.emitter(WORDS) as emitter:
            for key in keys:
                emitter.emit(key, "x")
        first = one.processor(COUNTS, instance_id="one")
        second = two.processor(COUNTS, instance_id="two")
        threads = [threading.Thread(target=each.run) for each in (first, second)]
        readers = [threading.Thread(target=ask, args=(each,)) for each in (first, second)]
        try:
            threads[0].start()
            for reader in readers:
                reader.start()
            wait_until(lambda: rows_of(first) == everything, 60)
            threads[1].start()
            wait_until(lambda: len(first.working) == len(second.working) == PARTITIONS // 2, 60)
            wait_until(lambda: {**rows_of(first), **rows_of(second)} == everything, 60)
            moved = second.working[0]
            with pytest.raises(PartitionNotAssigned) as caught:
                first.range(COUNTS.table, partition=moved)
            assert caught.value.partition == moved
            assert second.freshness(COUNTS.table)[moved].offset > 0
        finally:
            done.set()
            for processor, thread in zip((first, second), threads, strict=True):
                processor.stop()
                if thread.ident is not None:
                    thread.join()
            for reader in readers:
                if reader.ident is not None:
                    reader.join()
    assert wrong == []
    with pytest.raises(NotReady):
        first.get(COUNTS.table, keys[0])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for deleted in admin.delete_topics(
        [WORDS.name, *COUNTS.tables, COUNTS.dead_letters, COUNTS.retry]
    ).values():
        deleted.result(60)
