"""The interface of the behaviour tests to a place where groups run, and the two places: the Tester, and a real Kafka."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tests.behaviour.groups import counting
from tests.system.bench import SECONDS_MAX, Bench, Running, until

from localkafka.fixtures import Topics
from streamtable import Ack, App, Emitter, Group, Guarantee, Stream, String, Table
from streamtable.base.ports import Codec
from streamtable.base.types import Headers, KafkaMessage, TopicPartition, Watermarks
from streamtable.errors import StreamtableError
from streamtable.views.view import View
from streamtable_testing import DeadLetter, Emitted, Tester
from streamtable_testing.tester import rows_of

K = TypeVar("K")
V = TypeVar("V")
ROOT = Path(__file__).parents[2]


class World(Protocol):
    """A place where groups run. Names of streams and groups begin with what `name` puts before them."""

    def name(self, name: str) -> str: ...

    def create(self, *streams: Stream[Any, Any], partitions: int = 1) -> None: ...

    def run(
        self,
        *groups: Group[Any, Any],
        members: int = 1,
        partitions: int = 1,
        guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
    ) -> None:
        """Create missing topics, and start members of the groups."""
        ...

    def run_to_crash(
        self, tag: str, at: str, partitions: int = 1, guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    ) -> None:
        """Let the group `counting(name, tag)` run until it is killed at a failpoint; `start` waits for that.

        The second time it is reached: the first commit holds a new partition's offsets.
        """
        ...

    def stop(self, group: Group[Any, Any]) -> None: ...

    def start(self, group: Group[Any, Any], *, disk: bool = True) -> None: ...

    def join(self, group: Group[Any, Any]) -> None: ...

    def leave(self, group: Group[Any, Any], member: int) -> None: ...

    def emit(
        self,
        stream: Stream[K, V],
        key: K,
        value: V | None,
        *,
        headers: Headers = (),
        timestamp_ms: int = 0,
    ) -> Ack: ...

    def emit_many(self, stream: Stream[K, V], events: Iterable[tuple[K, V | None]]) -> None: ...

    def emit_raw(
        self, topic: str, key: bytes | None, value: bytes | None, *, partition: int = 0, headers: Headers = ()
    ) -> None: ...

    def settle(self) -> None:
        """Wait until all input is handled and committed. Raises the error that has stopped a member."""
        ...

    def records(self, stream: Stream[K, V]) -> list[Emitted[K, V]]: ...

    def table(self, group: Group[K, V]) -> Mapping[K, V]: ...

    def dead_letters(self, group: Group[Any, Any]) -> list[DeadLetter]: ...

    def view(self, table: Table[K, V]) -> View[K, V]:
        """A view that is ready."""
        ...

    def until(self, true: Callable[[], object]) -> None:
        """Wait for it. The Tester has done all that there is to do: there it is true at once."""
        ...


def text_stream(world: World, name: str) -> Stream[str, str]:
    return Stream(world.name(name), String(), String())


def stream_of(world: World, name: str, value: Codec[V]) -> Stream[str, V]:
    return Stream(world.name(name), String(), value)


class TesterWorld:
    """A world on the Tester. Errors that end a member are kept for `settle`, as on Kafka."""

    def __init__(self, tester: Tester) -> None:
        self._tester = tester
        self._failure: StreamtableError | None = None

    def name(self, name: str) -> str:
        return name

    def create(self, *streams: Stream[Any, Any], partitions: int = 1) -> None:
        self._tester.create(*streams, partitions=partitions)

    def run(
        self,
        *groups: Group[Any, Any],
        members: int = 1,
        partitions: int = 1,
        guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
    ) -> None:
        self._tester.run(*groups, members=members, partitions=partitions, guarantee=guarantee)

    def run_to_crash(
        self, tag: str, at: str, partitions: int = 1, guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    ) -> None:
        group = counting(self.name, tag)
        self._tester.crash(group, at, times=2)
        self._tester.run(group, partitions=partitions, guarantee=guarantee)

    def stop(self, group: Group[Any, Any]) -> None:
        self._tester.stop(group)

    def start(self, group: Group[Any, Any], *, disk: bool = True) -> None:
        self._keep(lambda: self._tester.start(group, disk=disk))

    def join(self, group: Group[Any, Any]) -> None:
        self._tester.join(group)

    def leave(self, group: Group[Any, Any], member: int) -> None:
        self._tester.leave(group, member)

    def emit(
        self,
        stream: Stream[K, V],
        key: K,
        value: V | None,
        *,
        headers: Headers = (),
        timestamp_ms: int = 0,
    ) -> Ack:
        ack = Emitter(stream, self._tester.kafka).emit_now(
            key, value, headers=headers, timestamp_ms=timestamp_ms
        )
        self._keep(self._tester.work)
        return ack

    def emit_many(self, stream: Stream[K, V], events: Iterable[tuple[K, V | None]]) -> None:
        self._keep(lambda: self._tester.emit_many(stream, events))

    def emit_raw(
        self, topic: str, key: bytes | None, value: bytes | None, *, partition: int = 0, headers: Headers = ()
    ) -> None:
        self._keep(lambda: self._tester.emit_raw(topic, key, value, partition=partition, headers=headers))

    def settle(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def records(self, stream: Stream[K, V]) -> list[Emitted[K, V]]:
        return self._tester.records(stream)

    def table(self, group: Group[K, V]) -> Mapping[K, V]:
        return self._tester.table(group)

    def dead_letters(self, group: Group[Any, Any]) -> list[DeadLetter]:
        return self._tester.dead_letters(group)

    def view(self, table: Table[K, V]) -> View[K, V]:
        return self._tester.view(table)

    def until(self, true: Callable[[], object]) -> None:
        assert true()

    def _keep(self, doing: Callable[[], object]) -> None:
        try:
            doing()
        except StreamtableError as error:
            self._failure = error


@dataclass
class RealMember:
    """A member on a real Kafka: in a thread, or, to be killed, in a process."""

    group: Group[Any, Any]
    instance: str
    guarantee: Guarantee
    running: Running | None = None
    child: subprocess.Popen[bytes] | None = None


class RealWorld:
    """A world on a real Kafka and RocksDB, with members in threads."""

    def __init__(self, bootstrap_servers: str, topics: Topics, folder: Path) -> None:
        self._bench = Bench(bootstrap_servers, topics, folder)
        self._topics = topics
        self._folder = folder
        self._members: dict[str, list[RealMember]] = {}
        self._stack = ExitStack()
        self._stack.callback(self._bench.close)
        self._reader = self._bench.kafka.table_reader("looking")
        self._stack.callback(self._reader.close)
        self._emitters: dict[str, Emitter[Any, Any]] = {}

    def close(self) -> None:
        for member in self._all():
            if member.running is not None:
                member.running.processor.stop()  # all at once; each is waited for below
            if member.child is not None:
                member.child.kill()
                member.child.wait()
        self._stack.close()

    def name(self, name: str) -> str:
        return self._topics.name(name)

    def create(self, *streams: Stream[Any, Any], partitions: int = 1) -> None:
        for stream in streams:
            self._topics.create(stream.name.removeprefix(self.name("")), partitions=partitions)

    def run(
        self,
        *groups: Group[Any, Any],
        members: int = 1,
        partitions: int = 1,
        guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
    ) -> None:
        for group in groups:
            self._bench.create(group, partitions)
            self._members[group.name] = []
            for _ in range(members):
                self._start(self._add(group, guarantee))

    def run_to_crash(
        self, tag: str, at: str, partitions: int = 1, guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    ) -> None:
        group = counting(self.name, tag)
        self._bench.create(group, partitions)
        self._members[group.name] = []
        member = self._add(group, guarantee)
        command = [sys.executable, str(ROOT / "tests/behaviour/child.py")]
        command += [self._bench.kafka.bootstrap_servers, self.name("")[:-1], tag]
        command += [str(self._folder / member.instance), member.instance, guarantee.value, f"{at}:2"]
        member.child = subprocess.Popen(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)})

    def stop(self, group: Group[Any, Any]) -> None:
        for member in self._members[group.name]:
            if member.running is not None:
                member.running.end()
                member.running = None

    def start(self, group: Group[Any, Any], *, disk: bool = True) -> None:
        for member in self._members[group.name]:
            if member.child is not None:
                assert member.child.wait(SECONDS_MAX) == -signal.SIGKILL
                member.child = None
            if member.running is None:
                if not disk:
                    shutil.rmtree(self._folder / member.instance, ignore_errors=True)
                self._start(member)

    def join(self, group: Group[Any, Any]) -> None:
        self._start(self._add(group, self._members[group.name][0].guarantee))

    def leave(self, group: Group[Any, Any], member: int) -> None:
        leaving = self._members[group.name].pop(member)
        if leaving.running is not None:
            leaving.running.stop()

    def emit(
        self,
        stream: Stream[K, V],
        key: K,
        value: V | None,
        *,
        headers: Headers = (),
        timestamp_ms: int = 0,
    ) -> Ack:
        return self._emitter(stream).emit_now(key, value, headers=headers, timestamp_ms=timestamp_ms)

    def emit_many(self, stream: Stream[K, V], events: Iterable[tuple[K, V | None]]) -> None:
        emitter = self._emitter(stream)
        for key, value in events:
            emitter.emit(key, value)
        emitter.flush(SECONDS_MAX)

    def emit_raw(
        self, topic: str, key: bytes | None, value: bytes | None, *, partition: int = 0, headers: Headers = ()
    ) -> None:
        self._bench.send(topic, (key, value, headers), partition=partition)

    def settle(self) -> None:
        for name in self._members:
            until(lambda: self._settled(name), "all input is handled and committed")  # noqa: B023 - called at once

    def records(self, stream: Stream[K, V]) -> list[Emitted[K, V]]:
        return [Emitted.of(stream, place.partition, message) for place, message in self._read(stream.name)]

    def table(self, group: Group[K, V]) -> Mapping[K, V]:
        return rows_of(group.table, self._read(group.table.name))

    def dead_letters(self, group: Group[Any, Any]) -> list[DeadLetter]:
        letters = (DeadLetter.of(message) for _, message in self._read(group.dead_letters))
        return [letter for letter in letters if letter is not None]

    def view(self, table: Table[K, V]) -> View[K, V]:
        view = App(self._bench.kafka, self._folder / "views", name=table.name).view(table)
        self._stack.enter_context(view)
        view.wait_ready(SECONDS_MAX)
        return view

    def until(self, true: Callable[[], object]) -> None:
        until(true, "what the test waits for")

    def _all(self) -> list[RealMember]:
        return [member for members in self._members.values() for member in members]

    def _add(self, group: Group[Any, Any], guarantee: Guarantee) -> RealMember:
        instance = f"{group.name}-{len(self._all())}"
        self._members[group.name].append(RealMember(group, instance, guarantee))
        return self._members[group.name][-1]

    def _start(self, member: RealMember) -> None:
        member.running = self._bench.run(
            member.group, state=member.instance, instance_id=member.instance, guarantee=member.guarantee
        )

    def _emitter(self, stream: Stream[K, V]) -> Emitter[K, V]:
        if stream.name not in self._emitters:
            self._emitters[stream.name] = Emitter(stream, self._bench.kafka)
            self._stack.callback(self._emitters[stream.name].close)
        return self._emitters[stream.name]

    def _settled(self, name: str) -> bool:
        for member in self._members[name]:
            if member.running is None:
                return True  # it was stopped; what comes meanwhile waits for it
            if (error := member.running.error) is not None:
                member.running = None
                raise error
            if not member.running.processor.ready:
                return False
        group = self._members[name][0].group
        committed = self._bench.committed(group)
        # Behind the last record may stand a marker, which is never committed.
        behind = [place for place, end in self._bench.ends(group).items() if committed.get(place, -1) < end]
        last = {
            place: message.offset()
            for topic in {p.topic for p in behind}
            for place, message in self._read(topic)
        }
        return all(committed.get(place, -1) > last.get(place, -2) for place in behind)

    def _read(self, topic: str) -> list[tuple[TopicPartition, KafkaMessage]]:
        """All committed records, partition by partition."""
        partitions = self._bench.cluster.topics([topic])[topic].partitions
        marks: dict[TopicPartition, Watermarks] = {}

        def answered() -> bool:
            places = [TopicPartition(topic, number) for number in range(partitions)]
            marks.update(self._bench.cluster.watermarks(places))
            return True

        until(
            answered, f"the end offsets of {topic} are known"
        )  # a new leader is not known everywhere at once
        self._reader.assign({place: mark.low for place, mark in marks.items()})
        found: dict[TopicPartition, list[KafkaMessage]] = {place: [] for place in marks}

        def whole() -> bool:
            for batch in self._reader.poll(10_000, 0.1):
                found[batch.place].extend(batch.messages)
            return all(self._reader.position(place) >= mark.high for place, mark in marks.items())

        until(whole, f"{topic} is read to its end")
        self._reader.unassign(marks)
        return [(place, message) for place in sorted(found) for message in found[place]]
