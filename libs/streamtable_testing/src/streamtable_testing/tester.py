"""The Tester: runs groups without a broker, with the real engine, in milliseconds and without threads.

    def test_counts(tester: Tester) -> None:
        tester.run(CLICK_COUNT)
        tester.emit(USER_CLICKS, "alice", click)
        assert tester.table(CLICK_COUNT)["alice"] == 1

Everything but the broker, the disk and the clock is real: codecs, handlers, commits, recovery. After each call of the
Tester, all groups and views work until they are idle, so a test never waits.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, Self, TypeVar, overload

from prometheus_client import CollectorRegistry

from streamtable.app import Processor
from streamtable.base.deadletter import ERROR, MESSAGE, PREFIX, VALUE_OMITTED, Origin
from streamtable.base.failpoint import ALL_STEPS
from streamtable.base.keys import as_key
from streamtable.base.topics import Stream, Table
from streamtable.base.tracing import tracer_of
from streamtable.base.types import Ack, Guarantee, Headers, KafkaMessage, TopicPartition
from streamtable.emitter import Emitter
from streamtable.engine import ProcessorSettings, observe_seconds
from streamtable.errors import ConfigurationError
from streamtable.graph.companion import CALLS
from streamtable.graph.group import Group, Topology, groups_in
from streamtable.graph.state import State
from streamtable.graph.topic_check import partition_counts, required_topics
from streamtable.graph.topic_owners import refuse_shared_topics
from streamtable.handlers.context import DeclaredCall
from streamtable.observe import Metrics, log_to_stderr_by_default
from streamtable.store.memory import MemoryStores
from streamtable.views.updater import ViewUpdater
from streamtable.views.view import View
from streamtable_testing.clock import VirtualClock
from streamtable_testing.held_calls import HeldCalls
from streamtable_testing.instance import Graves, Instance, MakeTasks, progress_of
from streamtable_testing.late_summary import late_summary
from streamtable_testing.log import VirtualKafka

K = TypeVar("K")
V = TypeVar("V")
Q = TypeVar("Q")
SK = TypeVar("SK")
SV = TypeVar("SV")

_TURNS_MAX = 20_000
_QUIET_TURNS = 3  # a rebalance takes a turn of every member for each of its steps
_TICK_SECONDS = 2e-6  # the clock time of an idle turn
_RETRY_SECONDS = 0.1
_SLICE_SECONDS = 10.0  # while time passes, members send heartbeats at least this often
_WAITS_OFTEN = 60.0  # seconds
_OFTEN = 10  # checks of idle inputs; four of them make `idle_after`, unless that is long
_NEVER_SECONDS = 1e9


@dataclass(frozen=True)
class Emitted(Generic[K, V]):
    """A committed record of a stream; `value` None is a tombstone."""

    key: K | None
    value: V | None
    partition: int
    offset: int
    timestamp_ms: int
    headers: Headers

    @staticmethod
    def of(stream: Stream[K, V], partition: int, message: KafkaMessage) -> "Emitted[K, V]":
        """Decode a record of a stream. Raises `DeserializationError`."""
        key, value = message.key(), message.value()
        return Emitted(
            None if key is None else stream.key.decode(key),
            None if value is None else stream.value.decode(value),
            partition,
            message.offset(),
            message.timestamp()[1],
            tuple(message.headers() or ()),
        )


@dataclass(frozen=True)
class DeadLetter:
    """A record that a group could not process.

    Attributes:
        key: The raw key.
        value: The raw value.
        origin: The position of the original record.
        error: The class name of the error.
        reason: The message of the error.
        headers: All headers: the record's own, then the headers of `streamtable.base.deadletter`.
    """

    key: bytes | None
    value: bytes | None
    origin: Origin
    error: str
    reason: str
    headers: Headers

    @staticmethod
    def of(message: KafkaMessage) -> "DeadLetter | None":
        """Decode a dead letter; None for a record without the headers of one."""
        headers = tuple(message.headers() or ())
        # The record's own headers hold any bytes, such as the id of a schema.
        texts = {name: (value or b"").decode(errors="replace") for name, value in headers}
        origin = Origin.read(headers)
        if origin is None:
            return None
        return DeadLetter(message.key(), message.value(), origin, texts[ERROR], texts[MESSAGE], headers)


def rows_of(table: Table[K, V], messages: Iterable[tuple[TopicPartition, KafkaMessage]]) -> Mapping[K, V]:
    """Return the table in the records of its topic: the last value of each key, without deleted ones.

    Of rows with the same key, the one of the highest partition is returned: records come partition by partition.

    Raises:
        ConfigurationError: Rows have keys that are equal in Python, and not the same.
    """
    rows = {(place, message.key()): message.value() for place, message in messages}
    found: dict[Any, V] = {}
    stored: dict[Any, bytes] = {}
    for (_, key), value in rows.items():
        if key is not None and value is not None:
            decoded = as_key(table.key.decode(key))
            if stored.setdefault(decoded, key) != key:
                raise ConfigurationError(
                    f"the table {table.name!r} has rows of the keys {stored[decoded]!r} and {key!r}, which are equal in Python: "
                    "a dict has one of them only. Look at the rows with tester.records(Stream(...)) of its topic"
                )
            found[decoded] = table.value.decode(value)
    return MappingProxyType(found)


class Tester:
    """Groups, topics and time for one test. A context manager; pytest passes one to each test with the fixture `tester`.

    Args:
        partitions: The default number of partitions of topics.
        commit_on_request: Whether commits happen only at `commit` (and at a rebalance or a stop) instead of after every turn.
        work_on_request: Whether processes work only when `work` or `advance` is called, to test states in between, or with all
            records in the topics before the first is read.
        poll_records: The most records that a process reads at once; topics are read in the order of their names.
        purge: Whether processes delete the records of topics between the groups of a flow once they are committed, every 30
            seconds, as they do on Kafka. By default the records stay, to be looked at by `records`.
        now: Seconds since 1970 when the test begins. Events that are more than an hour ahead are refused by groups that
            follow event time, unless `EventTime` says otherwise.

    Attributes:
        clock: The clock, which advances only by `advance`, by a moment for each turn, and while a micro-batch or a sink waits for
            more records: until its `max_wait` is over. Give it a short one where other times matter.
        kafka: The virtual broker, for rare operations: `compact`, `delete_records`, `delete_topic`, committed offsets.
    """

    __test__ = False  # by its name, pytest would collect it as a test class

    def __init__(
        self,
        *,
        partitions: int = 1,
        commit_on_request: bool = False,
        work_on_request: bool = False,
        poll_records: int = 10_000,
        purge: bool = False,
        now: float = 1_700_000_000.0,
    ) -> None:
        log_to_stderr_by_default()  # like a real Kafka: tracebacks with a megabyte of locals take seconds
        self.clock = VirtualClock(now)
        self._graves = Graves()
        self.kafka = VirtualKafka(self.clock, self._graves)
        self._partitions = partitions
        self._interval = _NEVER_SECONDS if commit_on_request else _TICK_SECONDS / 2
        self._by_itself = not work_on_request
        self._poll_records = poll_records
        self._purge = purge
        self._instances: dict[str, list[Instance]] = {}
        self._at_first: dict[str, tuple[str | None, int]] = {}
        self._begun: list[Instance] = []  # also those that have left
        self._views: list[tuple[View[Any, Any], ViewUpdater, Iterator[float]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        waiting = [f"group {i.group.name!r} at {i.kill_at!r}" for i in self._all() if i.kill_at is not None]
        waiting += [f"group {name!r} at {at!r}" for name, (at, _) in self._at_first.items()]
        self.close()
        if error is not None and (summary := self.summary()):
            error.add_note(summary)
        if kind is None and waiting:
            raise AssertionError(f"the crash of {waiting[0]} has not happened: the failpoint was not reached")

    def close(self) -> None:
        """End all processes without a commit."""
        for _, updater, turns in self._views:
            updater.close()
            for _ in turns:
                pass
        for instance in self._all():
            if instance.processor is not None:
                instance.kill()

    # ---- groups ----------------------------------------------------------------------------------------------------

    def create(self, *streams: Stream[Any, Any], partitions: int | None = None) -> None:
        """Create topics before any group runs, to fill them first or to give them another number of partitions."""
        for stream in streams:
            self.kafka.create_topic(stream.name, partitions or self._partitions)

    def run(
        self,
        *programs: Group[Any, Any] | Topology,
        members: int = 1,
        partitions: int | None = None,
        guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
        standby: bool | int = False,
        tasks: MakeTasks | None = None,
    ) -> None:
        """Create the missing topics, start the groups, and let them work.

        Args:
            programs: Groups and flows, which may read each other's output.
            members: The number of processes of each group.
            partitions: The number of partitions of new topics; by default as for the group's input, if it exists.
            guarantee: The processor's guarantee.
            standby: Whether each member keeps standby replicas of the other members' partitions, as a processor does; a number: of
                those that would be its own if as many members left.
            tasks: Makes the task factory of each process, for groups that do not use local tables; default: the group's own.

        Raises:
            ConfigurationError: A group is already running, topics do not match, or one would belong to two groups.
        """
        groups = groups_in(programs)
        self._create_topics(groups, partitions)
        for group in groups:
            if self._instances.get(group.name):
                raise ConfigurationError(
                    f"group {group.name!r} is already running: `join` adds a member, `start` restarts a stopped one"
                )
            self._instances[group.name] = []
            make_tasks = tasks or group.custom_tasks
            for _ in range(members):
                self._add(group, guarantee, make_tasks, standby=standby)
        self._work_by_itself()

    def join(self, group: Group[Any, Any], *, tasks: MakeTasks | None = None) -> None:
        """Start another member; partitions move to it.

        Args:
            group: The group; another graph of the same name is the next version of the program, whose new topics are
                created: a deployment that replaces the members one by one.
            tasks: As in `run`: what makes the tasks of the new member, if the next version of a group with `tasks` joins.
        """
        if not (members := self._of(group)):
            raise ConfigurationError(
                f"the last member of group {group.name!r} has left: call tester.run({group.name})"
            )
        first = members[0]
        make_tasks = self._tasks_of(group, first, tasks)
        self._add(group, first.settings.guarantee, make_tasks, standby=first.settings.standby)
        self._work_by_itself()

    def leave(self, group: Group[Any, Any], member: int = -1) -> None:
        """Stop a member for good: its handled records are committed, its partitions go to the others.

        After the last one has left, the group can be `run` again.
        """
        self._of(group).pop(member).stop()
        self._work_by_itself()

    def stop(self, group: Group[Any, Any]) -> None:
        """Stop all members cleanly; `start` starts them again."""
        for instance in self._of(group):
            instance.stop()
        self._work_by_itself()

    def start(self, group: Group[Any, Any], *, disk: bool = True, tasks: MakeTasks | None = None) -> None:
        """Start the members that were stopped, have crashed, or were ended by an error.

        The next version of a flow is started group by group: `stop` each group of the first version, then `start` each one of
        `flow.groups` with a name that ran before, and `run` the others.

        Args:
            group: The group; another graph of the same name is the next version of the program, whose new topics are
                created.
            disk: Whether they find their local state on disk.
            tasks: As in `run`: what makes the tasks of the next version of a group that was run with `tasks`.
        """
        for instance in self._of(group):
            if instance.processor is None:
                instance.make_tasks = self._tasks_of(group, instance, tasks)
                instance.group = group
                instance.start(disk=disk)
        self._work_by_itself()

    def _tasks_of(
        self, group: Group[Any, Any], before: Instance, tasks: MakeTasks | None
    ) -> MakeTasks | None:
        """Return what makes the tasks of a process that starts beside, or after, another one, and create its new topics."""
        if group is not before.group:
            self._create_topics([group])
        if tasks is not None:
            return tasks
        if before.make_tasks == before.group.custom_tasks:
            return group.custom_tasks
        if group is not before.group:
            raise ConfigurationError(
                f"group {group.name!r} was run with tasks=, which make the tasks of the version before: give tasks= of this one"
            )
        return before.make_tasks

    def _create_topics(self, groups: Sequence[Group[Any, Any]], partitions: int | None = None) -> None:
        running = [
            each.group for each in self._all() if each.group.name not in {group.name for group in groups}
        ]
        refuse_shared_topics([*running, *groups])
        names = {name for group in groups for name in required_topics(group)}
        found = {name: topic.info.partitions for name in names if (topic := self.kafka.topic(name))}
        counts = partition_counts(groups, {} if partitions else found, partitions or self._partitions)
        for group in groups:
            self.kafka.create_topics_of(group, counts)

    def crash(
        self, group: Group[Any, Any], at: str | None = None, *, member: int = 0, times: int = 1
    ) -> None:
        """Kill a member as SIGKILL does: now, or in the middle of its next work.

        Its partitions stay with it until `start`, or until its session has ended: `advance(45)`. A crash that was
        ordered but has not happened is an error when the Tester ends.

        Args:
            group: The group.
            at: between which steps, by the name of a failpoint (`streamtable.base.failpoint.ALL_STEPS`). Of a group
                that does not run yet, or a member that is down: when it starts.
            member: The number of the member in the order of joining.
            times: The number of times it reaches the failpoint before it is killed.

        Raises:
            ValueError: no failpoint has that name.
        """
        if at not in {None, *ALL_STEPS}:
            raise ValueError(f"no failpoint is named {at!r}; there are {', '.join(ALL_STEPS)}")
        if at is not None and not self._instances.get(group.name):
            self._at_first[group.name] = (at, times)
        elif at is None:
            self._of(group)[member].kill()
        else:
            instance = self._of(group)[member]
            instance.kill_at, instance.times = at, times

    # ---- input and time --------------------------------------------------------------------------------------------

    def emit(
        self, stream: Stream[K, V], key: K, value: V | None, *, headers: Headers = (), timestamp_ms: int = 0
    ) -> Ack:
        """Emit an event as an `Emitter` does, and let all processes work.

        Args:
            stream: The stream to emit to.
            key: decides the partition.
            value: None: a tombstone.
            headers: names and bytes.
            timestamp_ms: milliseconds since 1970; 0: the clock's.

        Raises:
            HandlerFailed: from a handler whose input says `OnError.STOP`, with the place of the record; its cause is
                chained. The member has ended, as its process would have.
        """
        self._exists(stream.name)
        ack = Emitter(stream, self.kafka).emit_now(key, value, headers=headers, timestamp_ms=timestamp_ms)
        self._work_by_itself()
        return ack

    def emit_many(self, stream: Stream[K, V], events: Iterable[tuple[K, V | None]]) -> None:
        """Emit events first and let all processes work afterwards, so that the events come in one batch.

        All get the time of the clock. Events with times of their own come in one batch in a `Tester(work_on_request=True)`:
        `emit` each with `timestamp_ms`, then `work`.
        """
        self._exists(stream.name)
        with Emitter(stream, self.kafka) as emitter:
            for key, value in events:
                emitter.emit(key, value)
        self._work_by_itself()

    def emit_raw(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        partition: int = -1,
        headers: Headers = (),
        timestamp_ms: int = 0,
    ) -> Ack:
        """Write bytes as they are: poison, a record without a key. `partition` -1: by murmur2 of the key, whatever the stream says."""
        self._exists(topic)
        ack = self.kafka.append(
            topic, key, value, partition=partition, headers=headers, timestamp_ms=timestamp_ms
        )
        self._work_by_itself()
        return ack

    def retry(self, group: Group[Any, Any], letter: DeadLetter) -> None:
        """Replay a dead letter, as the command line does.

        Raises:
            ConfigurationError: It holds a timer or another row that fell due, or its value was too large for the letter, and
                the record is not at its origin any more.
        """
        origin, own = letter.origin, group.dead_letters.removesuffix("dead-letters")
        is_omitted = any(name == VALUE_OMITTED for name, _ in letter.headers)
        is_call = origin.topic == own + CALLS and not is_omitted
        if origin.offset < 0 and origin.topic.startswith(own) and not is_call:
            raise ConfigurationError(
                "the dead letter holds a timer or another row that fell due, and no record of an input: it cannot be sent again. "
                "Have the timer set again by an event of its key"
            )
        key, value, headers = letter.key, letter.value, letter.headers
        if is_omitted:
            record = self._record_at(origin)
            key, value = record.key(), record.value()
            theirs = [header for header in record.headers() or () if not header[0].startswith(PREFIX)]
            headers = [*theirs, *(header for header in headers if header[0] != VALUE_OMITTED)]
        self.emit_raw(group.retry, key, value, partition=origin.partition, headers=headers)

    def _record_at(self, origin: Origin) -> KafkaMessage:
        place = TopicPartition(origin.topic, origin.partition)
        for found, record in self.kafka.records(place.topic) if self.kafka.topic(place.topic) else ():
            # Of a topic that was created again, another record has the offset.
            same = record.timestamp()[1] == origin.timestamp_ms or origin.timestamp_ms == -1
            if (found, record.offset()) == (place, origin.offset) and same:
                return record
        raise ConfigurationError(
            f"the dead letter has no value, and {place.topic}-{place.partition}@{origin.offset} does not hold it any more"
        )

    def advance(self, seconds: float) -> None:
        """Advance the clock, with all processes working meanwhile, also with `work_on_request`.

        An input of a group with `EventTime` is idle after half as long again as its `idle_after`.
        """
        times = [each.group.event_time for each in self._all()]
        often = min([_SLICE_SECONDS, *(observe_seconds(each) for each in times if each is not None)])
        passed = 0.0
        while seconds > 0:
            # Often at first, so that idle inputs are found as they fall silent; then a day must not take a minute.
            part = min(seconds, often if passed < _OFTEN * often else _SLICE_SECONDS)
            passed += part
            self.clock.advance(part)
            self.work()
            seconds -= part

    def commit(self) -> None:
        """Commit the handled records; for a Tester with `commit_on_request`."""
        for instance in self._all():
            instance.commit()
        self._work_by_itself()

    def work(self) -> None:
        """Let all processes work until nothing more happens. All other methods do so too, except with `work_on_request`.

        Raises:
            AssertionError: It does not end, as when a group reads its own output.
        """
        quiet, waited = 0, 0.0
        for _ in range(_TURNS_MAX):
            before = self._picture()
            for instance in self._all():
                instance.turn()
            for _, _, turns in self._views:
                next(turns, None)
            if before != self._picture():
                quiet = 0
            elif any(instance.busy for instance in self._all()):
                # Often at first, so that timers beside it fire in time; then an hour must not take a minute.
                step = min(self._until_due(), _RETRY_SECONDS if waited < _WAITS_OFTEN else _SLICE_SECONDS)
                self.clock.advance(step)
                waited += step
            elif (quiet := quiet + 1) == _QUIET_TURNS:
                return
        raise AssertionError(
            f"still running after {_TURNS_MAX} turns: does a group read what it emits, or wait for what never comes?"
        )

    # ---- output ----------------------------------------------------------------------------------------------------

    def records(self, stream: Stream[K, V]) -> list[Emitted[K, V]]:
        """Return the committed records of a stream, partition by partition. Raises `DeserializationError` for poison."""
        self._exists(stream.name)
        found = self.kafka.records(stream.name)
        return [Emitted.of(stream, place.partition, record) for place, record in found]

    @overload
    def table(self, kept: Group[K, V] | Table[K, V]) -> Mapping[K, V]: ...
    @overload
    def table(self, kept: Group[Any, Any], state: State[SK, SV]) -> Mapping[SK, SV]: ...
    def table(
        self, kept: Group[Any, Any] | Table[Any, Any], state: State[Any, Any] | None = None
    ) -> Mapping[Any, Any]:
        """Return the committed rows of a table, or of a group's, as its changelog says. Read-only, as of now.

        Args:
            kept: The table, or the group that keeps it.
            state: One of the group's state tables; None: its own table. Where partitions have rows of the same key, that
                of the highest partition is returned.
        """
        if isinstance(kept, Group):
            kept = kept.table if state is None else kept.state_table(state)
        table: Table[Any, Any] = kept
        self._exists(table.name)
        return rows_of(table, self.kafka.records(table.name))

    def processor(self, group: Group[Any, Any], member: int = -1) -> Processor:
        """Return the processor of a process of a group, in the order they began: to `get` rows, for example."""
        return self._of(group)[member].running

    def watermark_ms(self, group: Group[Any, Any], partition: int = 0) -> int:
        """Return the watermark of a partition; -1 if it has none yet. Raises `ConfigurationError` if it has no task."""
        for instance in self._of(group):
            member = instance.processor.member if instance.processor is not None else None
            task = member.assignment.tasks.get(partition) if member is not None else None
            if task is not None and task.event_clock is not None:
                return task.event_clock.watermark_ms
        raise ConfigurationError(
            f"no process of group {group.name!r} that follows event time works on partition {partition}"
        )

    def summary(self) -> str:
        """Return what may explain an unexpected result, a line for each: windows and joins that had late records.

        It is empty if there is nothing to say. A test that fails shows it: with the fixture `tester` among its output, else
        as a note of the error that leaves the `with` block.
        """
        return late_summary(registry for each in self._begun for registry in each.registries)

    def dead_letters(self, group: Group[Any, Any]) -> list[DeadLetter]:
        """Return the dead letters of the group, partition by partition."""
        self._exists(group.dead_letters)
        letters = (DeadLetter.of(record) for _, record in self.kafka.records(group.dead_letters))
        return [letter for letter in letters if letter is not None]

    def calls(self, call: DeclaredCall[Q]) -> HeldCalls[Q]:
        """Return the calls that groups have made with a `Call`: they run nothing, and have the results that the test gives.

        tester.calls(SCORE).pending          # the requests
        tester.calls(SCORE).answer({"score": 7})
        tester.calls(SCORE).fail(ConnectionError())
        tester.advance(1.0)                  # until it is tried again

        A call stays pending however far the clock goes: `fail(CallTimedOut())` is what `Call(timeout=)` does to an attempt that
        takes too long. It is tried again, also if `Retry(on=)` does not name it.
        """
        return HeldCalls(call, self._all, self.clock, self._work_by_itself)

    def view(self, table: Table[K, V]) -> View[K, V]:
        """Return a view of a table that is ready, is kept current, and ends with the Tester."""
        self._exists(table.name)
        log = self.kafka.process(f"view-{self.kafka.unique()}")
        metrics = Metrics.register(CollectorRegistry())
        updater = ViewUpdater(log, MemoryStores(self.clock.now), self.clock, metrics, "tester")
        view = View(table, updater)
        updater.open()
        self._views.append((view, updater, updater.turns()))
        self._work_by_itself()
        return view

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _work_by_itself(self) -> None:
        if self._by_itself:
            self.work()

    def _add(
        self,
        group: Group[Any, Any],
        guarantee: Guarantee,
        make_tasks: MakeTasks | None,
        *,
        standby: bool | int,
    ) -> None:
        instances = self._instances[group.name]
        settings = ProcessorSettings(
            instance_id=f"member-{self.kafka.unique()}",
            guarantee=guarantee,
            commit_interval=self._interval,
            poll_timeout=_TICK_SECONDS,
            poll_records=self._poll_records,
            standby=standby,
            purge=self._purge,
            tracer=tracer_of(self.kafka),
            by_hand=True,
        )
        instance = Instance(group, self.kafka, self._graves, settings, make_tasks)
        instance.kill_at, instance.times = self._at_first.pop(group.name, (None, 0))
        instances.append(instance)
        self._begun.append(instance)
        instance.start(disk=True)

    def _all(self) -> list[Instance]:
        return [instance for instances in self._instances.values() for instance in instances]

    def _of(self, group: Group[Any, Any] | Topology) -> list[Instance]:
        if not isinstance(group, Group):
            names = ", ".join(each.name for each in groups_in([group]))
            raise ConfigurationError(
                f"{group!r} is no group, but has these: {names}. Give one of its `groups`"
            )
        if group.name not in self._instances:
            raise ConfigurationError(
                f"group {group.name!r} does not run: call tester.run({group.name}) first"
            )
        return self._instances[group.name]

    def _exists(self, topic: str) -> None:
        if self.kafka.topic(topic) is None:
            there = ", ".join(sorted(self.kafka.topics)) or "none"
            raise ConfigurationError(
                f"there is no topic {topic!r}: run a group that uses it first, or tester.create(stream). There are: {there}"
            )

    def _until_due(self) -> float:
        """Return the seconds until something may happen: a batch that waits for more records is complete when it is due."""
        due = [at for instance in self._all() for at in instance.commits_due]
        waits = (
            min(due) - self.clock.monotonic()
            if due and not any(each.restores for each in self._all())
            else 0.0
        )
        return max(waits, _RETRY_SECONDS)

    def _picture(self) -> object:
        """Return a value that is equal as long as nothing happens."""
        ends = [(p.high, p.stable_end) for topic in self.kafka.topics.values() for p in topic.partitions]
        groups = [(self.kafka.group(name).members, self.kafka.committed(name)) for name in self._instances]
        views = [progress_of(view.position()) for view, _, _ in self._views]
        return ends, groups, views, [instance.progress for instance in self._all()]
