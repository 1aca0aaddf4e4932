"""Runs the command line like a user, mostly in this process, with groups of real processors as its subjects."""

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import structlog
from confluent_kafka import Producer
from typer.testing import CliRunner

from localkafka.fixtures import Topics
from localkafka.waiting import wait_until
from servicekit_testing.prefork import prefork_of
from streamtable import App, Avro, Group, Input, Kafka, Long, Persist, Processor, Stream, String
from streamtable.base.deadletter import Origin, dead_letter
from streamtable.base.types import Committed, NextOffset, RecordBatch, TopicPartition
from streamtable.errors import DeserializationError, RetryLater
from streamtable.graph.group import Edge
from streamtable_cli.main import app

COMMAND = [sys.executable, "-m", "streamtable_cli"]
MODULES = ("streamtable_cli", "streamtable_cli.main")
"""The command, and what it imports only when it handles Ctrl-C: for `prefork_of`."""
SECONDS_MAX = 60.0
NUMBER = Avro("long")
"""The codec of the events that `World.group` counts."""


@dataclass(frozen=True)
class Ran:
    """The result of a run of the command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    def good(self) -> "Ran":
        assert self.code == 0, f"{self.code}: {self.out}{self.err}"
        return self


class Cli:
    """Runs the command against a broker."""

    def __init__(self, bootstrap_servers: str, *flags: str) -> None:
        self.flags = flags
        self.environment = {"STREAMTABLE_BOOTSTRAP_SERVERS": bootstrap_servers, "COLUMNS": "200"}

    def __call__(self, *arguments: str, env: Mapping[str, str | None] | None = None, stdin: str = "") -> Ran:
        """Run the command in this process, which is quick. An uncaught exception fails the test."""
        with _logging_restored():
            result = CliRunner().invoke(
                app,
                [*self.flags, *arguments],
                env={**self.environment, **(env or {})},
                input=stdin,
                prog_name="streamtable",
            )
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    def process(
        self, *arguments: str, env: Mapping[str, str] | None = None, stdin: int = subprocess.DEVNULL
    ) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*COMMAND, *self.flags, *arguments],
            env={**os.environ, **self.environment, **(env or {})},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, env: Mapping[str, str] | None = None) -> Ran:
        """Run the command in its own process, forked from one that has imported it."""
        with TemporaryFile() as output, TemporaryFile() as errors:
            process = prefork_of(*MODULES).start(
                [*self.flags, *arguments],
                {**os.environ, **self.environment, **(env or {})},
                output.fileno(),
                errors.fileno(),
            )
            try:
                code = process.wait(SECONDS_MAX)
            finally:
                process.kill()
            return Ran(code, _text_of(output), _text_of(errors))


def _text_of(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


class World:
    """Topics and a counting group of one test."""

    def __init__(self, bootstrap_servers: str, topics: Topics, folder: Path) -> None:
        self.topics = topics
        self.kafka = Kafka(bootstrap_servers)
        self.folder = folder
        self._made: set[str] = set()
        self._producer = Producer(
            {
                "enable.idempotence": True,
                "bootstrap.servers": bootstrap_servers,
                "log_level": 0,
                "partitioner": "murmur2_random",
            }
        )

    def group(self, *edges: Edge[str, int], name: str = "g", partitions: int = 2) -> Group[str, int]:
        """Return a group that counts numbers by key, with its topics created, and the input if it is missing."""
        stream = Stream(self.topics.name("in"), String(), NUMBER)
        made: Group[str, int] = Group(self.topics.name(name), Input(stream, add), Persist(Long()), *edges)
        self.create(f"{name}-table", partitions=partitions, config={"cleanup.policy": "compact"})
        for topic in {"in", f"{name}-dead-letters", *(self.short(topic) for topic in made.input_topics)}:
            self.create(topic, partitions=partitions)
        return made

    def create(self, name: str, *, partitions: int, config: Mapping[str, str] | None = None) -> str:
        """Create a topic of this test unless it exists."""
        full = self.topics.name(name)
        if full not in self._made:
            self._made.add(full)
            self.topics.create(name, partitions=partitions, config=config)
        return full

    def short(self, topic: str) -> str:
        """Return a name without the test's prefix."""
        return topic.removeprefix(self.topics.name(""))

    def send(
        self,
        topic: str,
        *records: tuple[bytes | None, bytes | None],
        partition: int = -1,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp: int = 0,
    ) -> None:
        for key, value in records:
            self._producer.produce(
                topic,
                value,
                key,
                partition,
                headers=list(headers) or None,
                timestamp=timestamp,
            )
        assert self._producer.flush(30) == 0

    def transaction(self, *records: tuple[str, bytes, bytes]) -> None:
        """Write records (topic, key, value) in one transaction of a foreign tool, and wait for its markers in the topics."""
        outbox = self.kafka.transactional_producer(f"{self.topics.prefix}-tool")
        outbox.open(SECONDS_MAX)
        outbox.begin()
        for topic, key, value in records:
            outbox.produce(topic, key, value)
        outbox.commit(SECONDS_MAX)
        outbox.close()
        admin = self.kafka.admin()
        known = admin.topic_partitions()
        places = [
            TopicPartition(topic, n) for topic in {each for each, *_ in records} for n in range(known[topic])
        ]
        until(
            lambda: admin.stable_ends(places) == {p: m.high for p, m in admin.watermarks(places).items()},
            "the transaction has ended everywhere",
        )
        admin.close()

    def commit(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
        """Set a group's offsets like a foreign tool. The coordinator of a new broker takes a moment."""
        requested = {place: Committed(NextOffset(offset), metadata) for place, offset in offsets.items()}
        admin = self.kafka.admin()

        def done() -> bool:
            try:
                admin.set_offsets(group, requested)
            except RetryLater:
                return False
            return True

        until(done, "the offsets are set")
        admin.close()

    def letter(
        self, group: Group[Any, Any], key: bytes, value: bytes, *, offset: int, partition: int = 0
    ) -> None:
        """Write a dead letter, as a processor of the group writes it; below offset 0, of a timer."""
        now = time.time()
        topic = group.inputs[0].stream.name if offset >= 0 else group.named_topic("timers")
        origin = Origin(topic, partition, offset, int(now * 1000), attempt=0)
        batch = RecordBatch(origin.topic, partition, [_Message(key, value, offset, int(now * 1000))])
        error = DeserializationError(f"this is no number: {value!r}")
        made = dead_letter(
            batch,
            0,
            error,
            origin=origin,
            group=group.name,
            topic=group.dead_letters,
            now=now,
            bytes_max=1_000_000,
        )
        self.send(made.topic, (made.key, made.value), partition=partition, headers=made.headers)

    @contextmanager
    def running(self, group: Group[Any, Any], *, stop: bool = True) -> Iterator[Processor]:
        """Run a processor of the group in a thread during the block; without `stop`, wait until it ends by itself."""
        processor = App(self.kafka, self.folder / "state").processor(group, commit_interval=0.05)
        failures: list[BaseException] = []

        def run() -> None:
            try:
                processor.run()
            except BaseException as error:  # noqa: BLE001 - raised in the test's thread
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield processor
        finally:
            if stop:
                processor.stop()
            thread.join(SECONDS_MAX)
            processor.stop()
        if failures:
            raise failures[0]


@contextmanager
def _logging_restored() -> Iterator[None]:
    """Restore logging: the command configures it onto a stream that is closed when it ends."""
    handlers, level = logging.root.handlers[:], logging.root.level
    try:
        yield
    finally:
        logging.root.handlers[:] = handlers
        logging.root.setLevel(level)
        silence()


def silence() -> None:
    """Silence processors in threads of the tests, whose log lines would appear in the output of a command."""
    structlog.configure(processors=[lambda *_: ""], logger_factory=structlog.ReturnLoggerFactory())


@dataclass(frozen=True)
class _Message:
    """A message as the Kafka client delivers it."""

    key_: bytes
    value_: bytes
    offset_: int
    timestamp_: int

    def key(self) -> bytes:
        return self.key_

    def value(self) -> bytes:
        return self.value_

    def offset(self) -> int:
        return self.offset_

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, self.timestamp_


def add(ctx: Any, number: int) -> None:
    """A handler that rejects 13."""
    ctx.set((ctx.value or 0) + number)


def until(true: Callable[[], object], what: str) -> None:
    wait_until(true, SECONDS_MAX, what, every=0.05)
