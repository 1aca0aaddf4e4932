"""The site of a measurement: a broker, topics full of clicks, a folder, and the measured programs."""

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.clicks import ONE, Clicks, fill, fill_table
from bench.job import Job
from bench.measure import Mark, Program, RowFailed, python
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from localkafka.topics import create_topics

_NO_COORDINATOR = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
_ANSWER_SECONDS = 30.0
GROUP_TOPICS = ("table", "dead-letters", "retry")


@dataclass(frozen=True)
class Sizes:
    """The sizes of the measurements.

    Attributes:
        stream: The records of a full topic that a program reads.
        handler: The same for a function called for each record.
        keys: The number of keys of the table that is restored.
        gets: The number of reads of a view.
        seconds: How many seconds callers run.
        live_seconds: The seconds of a steady load.
        tries: The number of repetitions of short measurements.
        long_tries: The number of repetitions of long measurements that have goals.
        batch: The records of a Spark job.
    """

    stream: int = 1_500_000
    handler: int = 750_000
    keys: int = 1_000_000
    gets: int = 200_000
    seconds: float = 3.0
    live_seconds: float = 10.0
    tries: int = 3
    long_tries: int = 3
    batch: int = 5_000_000


FULL = Sizes()
QUICK = Sizes(stream=600_000, handler=300_000, keys=200_000, batch=250_000, long_tries=1)


class Site:
    """A broker that is used for measurements only.

    Args:
        broker: The address of the broker.
        folder: An existing folder for state and logs.
        sizes: The sizes of the measurements.
        profiles: The folder for the profiles of programs; None: nothing is profiled.
        broker_pid: The broker's process id; None if it runs elsewhere.
    """

    def __init__(
        self,
        broker: str,
        folder: Path,
        sizes: Sizes,
        profiles: Path | None = None,
        broker_pid: int | None = None,
    ) -> None:
        self.broker = broker
        self.broker_pid = broker_pid
        self.sizes = sizes
        self._folder = folder
        self._profiles = profiles
        self._admin = AdminClient({"bootstrap.servers": broker, "log_level": 0})
        self._filled: set[str] = set()
        self._groups = 0

    # ---- topics --------------------------------------------------------------------------------------------------------

    def clicks(self, clicks: Clicks) -> str:
        """Return the topic with these clicks, which is filled on first use."""
        self.fill(clicks.topic, clicks.records, clicks.partitions, lambda: fill(self.broker, clicks))
        return clicks.topic

    def fill(self, topic: str, records: int, partitions: int, write: Callable[[], None]) -> None:
        """Create a topic and call the function that writes its records, on first use. Raises `RowFailed` if it has others."""
        if topic not in self._filled:
            self.create([topic], partitions)
            write()
            self._check_filled(topic, records, partitions)

    def table(self, keys: int, name: str = "rows", row: bytes = ONE) -> str:
        """Return a table's topic with the same row for each of this many users: a count of one by default."""
        topic, partitions = f"{name}-{keys}", 4
        if topic not in self._filled:
            self.create([topic], partitions, {"cleanup.policy": "compact"})
            fill_table(self.broker, topic, keys, row)
            self._check_filled(topic, keys, partitions)
        return topic

    def create(self, topics: Iterable[str], partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Create topics and wait until the broker leads all their partitions."""
        new_topics = [NewTopic(topic, partitions, 1, config=dict(config or {})) for topic in topics]
        create_topics(self._admin, new_topics)

    def delete(self, *beginnings: str) -> None:
        """Delete the topics with these prefixes."""
        known = self._admin.list_topics(timeout=_ANSWER_SECONDS).topics
        names = [name for name in known if name.startswith(beginnings)]
        for deleted in (self._admin.delete_topics(names) if names else {}).values():
            error = deleted.exception(_ANSWER_SECONDS)
            gone = (
                isinstance(error, KafkaException) and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            )
            if error is not None and not gone:  # the list may have topics that a row has just deleted itself
                raise error
        self._filled.difference_update(names)

    def _check_filled(self, topic: str, records: int, partitions: int) -> None:
        held = self.held(topic, partitions)
        if held != records:
            raise RowFailed(f"{topic} holds {held} records, not {records}")
        self._filled.add(topic)

    # ---- programs ------------------------------------------------------------------------------------------------------

    def name(self, name: str) -> str:
        """Return a group name that was not used before."""
        self._groups += 1
        return f"g{self._groups}-{name.replace('_', '-')}"

    def group(self, name: str, partitions: int = 4) -> str:
        """Return the name of a new group, with the topics of a processor and of the hand-written loop."""
        group = self.name(name)
        table = {"cleanup.policy": "compact"}
        self.create([f"{group}-{GROUP_TOPICS[0]}", f"{group}-changelog"], partitions, table)
        self.create([f"{group}-{rest}" for rest in GROUP_TOPICS[1:]], partitions)
        return group

    def state(self, group: str) -> Path:
        """Return the folder of a group's state."""
        folder = self._folder / group
        folder.mkdir(exist_ok=True)
        return folder

    def wipe(self, group: str) -> None:
        """Delete the state of a group."""
        shutil.rmtree(self._folder / group, ignore_errors=True)

    def forget(self, group: str) -> None:
        """Delete the state and the topics of a group."""
        self.wipe(group)
        self.delete(f"{group}-")

    def start(self, module: str, job: Job, name: str) -> Program:
        """Start one of `programs`; `name` is for its log."""
        profile = self._profiles / f"profile-{name}.pstats" if self._profiles else None
        command = python(f"bench.programs.{module}", profile)
        return Program(command, job.environment(), self.log(name))

    def log(self, name: str) -> Path:
        """Return the file of a program's output."""
        return self._folder / f"{name}.log"

    # ---- results -----------------------------------------------------------------------------------------------------

    def wait_committed(self, program: Program, job: Job) -> Mark:
        """Wait until the group has committed all records of the job. Polls every few milliseconds."""
        places = _places(job)
        # Not stable offsets: these would wait for the end of a transaction, and this is a poll anyway.
        client = self._consumer(job.group, {"isolation.level": "read_uncommitted"})
        found = 0

        def committed() -> bool:
            nonlocal found
            found = sum(max(each.offset, 0) for each in _committed(client, places))
            return found >= job.records

        try:
            program.wait(committed, f"has not committed all {job.records} records")
            return program.now()
        except RowFailed as error:
            raise RowFailed(f"{found} of {job.records} records are committed; {error}") from error
        finally:
            client.close()

    def behind(self, group: str, topics: Iterable[str], markers: int = 0, partitions: int = 4) -> int:
        """Return the number of records of these topics that the group has not committed.

        Args:
            group: The consumer group.
            topics: The topics that it reads.
            markers: 1 if they are written in transactions, as each partition then ends with a transaction marker.
            partitions: The number of partitions of each topic.
        """
        places = [TopicPartition(topic, each) for topic in topics for each in range(partitions)]
        client = self._consumer(group, {"isolation.level": "read_uncommitted"})
        try:
            found = _committed(client, places)
            ends = [client.get_watermark_offsets(each, timeout=_ANSWER_SECONDS)[1] for each in found]
        finally:
            client.close()
        return sum(max(0, end - max(each.offset, 0) - markers) for each, end in zip(found, ends, strict=True))

    def committed(self, job: Job) -> int:
        """Return the number of records that the job's group has committed."""
        client = self._consumer(job.group, {"isolation.level": "read_uncommitted"})
        try:
            found = _committed(client, _places(job))
            return sum(max(each.offset, 0) for each in found)
        finally:
            client.close()

    def check_counts(self, changelog: str, job: Job, decode: Callable[[bytes], int]) -> None:
        """Raise `RowFailed` unless the last counts in the changelog add up to the job's records."""
        total = sum(map(decode, self.last_values(changelog, job.partitions).values()))
        if total != job.records:
            raise RowFailed(f"wrong: the counts in {changelog} add up to {total}, not to {job.records}")

    def check_written(self, topic: str, job: Job, records: int) -> None:
        """Raise `RowFailed` unless a topic has this many committed records."""
        written = self._readable(topic, job.partitions)
        if written != records:
            raise RowFailed(f"wrong: {topic} holds {written} records, not {records}")

    def check_counted_or_set_aside(self, job: Job, decode: Callable[[bytes], int]) -> None:
        """Raise `RowFailed` unless counts and dead letters add up to the job's records."""
        counted = sum(map(decode, self.last_values(f"{job.group}-table", job.partitions).values()))
        letters = self._readable(f"{job.group}-dead-letters", job.partitions)
        if counted + letters != job.records:
            raise RowFailed(
                f"wrong: {counted} counted and {letters} dead letters are not {job.records} records"
            )

    def last_values(self, topic: str, partitions: int = 4) -> dict[bytes, bytes]:
        """Return the last value of each key; empty for a deleted one."""
        values: dict[bytes, bytes] = {}
        for message in self._committed_records(topic, partitions):
            values[bytes(message.key() or b"")] = bytes(message.value() or b"")
        return values

    def values(self, topic: str, partitions: int = 4) -> list[bytes]:
        """Return the values of all committed records, without tombstones."""
        found = (message.value() for message in self._committed_records(topic, partitions))
        return [bytes(value) for value in found if value is not None]

    def held(self, topic: str, partitions: int) -> int:
        """Return the number of records in a topic, including transaction markers."""
        return sum(self._ends(topic, partitions).values())

    def _readable(self, topic: str, partitions: int) -> int:
        """Return the number of committed records in a topic."""
        return sum(1 for _ in self._committed_records(topic, partitions))

    def _committed_records(self, topic: str, partitions: int) -> Iterator[Message]:
        client = self._consumer(
            f"check-{topic}", {"isolation.level": "read_committed", "enable.partition.eof": True}
        )
        client.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
        left = partitions
        deadline = time.monotonic() + 4 * _ANSWER_SECONDS
        while left:
            if time.monotonic() > deadline:
                raise RowFailed(f"{topic} cannot be read to its end")
            for message in client.consume(10_000, 0.2):
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    left -= 1
                else:
                    raise RowFailed(f"{topic} cannot be read: {error}")
        client.close()

    def _ends(self, topic: str, partitions: int) -> dict[int, int]:
        client = self._consumer(f"ends-{topic}", {})
        try:
            return {
                each: client.get_watermark_offsets(TopicPartition(topic, each), timeout=_ANSWER_SECONDS)[1]
                for each in range(partitions)
            }
        finally:
            client.close()

    def _consumer(self, group: str, more: Mapping[str, object]) -> Consumer:
        settings = {"bootstrap.servers": self.broker, "group.id": group, "log_level": 0}
        return Consumer({**settings, "enable.auto.commit": False, "fetch.queue.backoff.ms": 5, **more})


def _places(job: Job) -> list[TopicPartition]:
    topics = [topic for topic in (job.topic, job.second) if topic]
    return [TopicPartition(topic, each) for topic in topics for each in range(job.partitions)]


def _committed(client: Consumer, places: list[TopicPartition]) -> list[TopicPartition]:
    """Return the committed offsets. A new broker has no coordinator until the first group creates the offsets topic."""
    deadline = time.monotonic() + _ANSWER_SECONDS
    while True:
        try:
            return client.committed(places, timeout=_ANSWER_SECONDS)
        except KafkaException as error:
            if error.args[0].code() not in _NO_COORDINATOR or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def until(true: Callable[[], bool], what: str) -> None:
    """Wait for a condition that takes a moment."""
    deadline = time.monotonic() + _ANSWER_SECONDS
    while not true():
        if time.monotonic() > deadline:
            raise RowFailed(f"not true after {_ANSWER_SECONDS:g} s: {what}")
        time.sleep(0.02)
