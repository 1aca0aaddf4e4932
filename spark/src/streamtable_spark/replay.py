"""A group's table by the group's own handlers: they process history, partition by partition, in Spark's workers.

The records of a partition are handled in the order of their timestamps across topics, and of their offsets within each, as
in a processor without lag. It is the processors' engine, without a broker
(`streamtable_testing.replay`); records that handlers emit are dropped.
"""

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, groupby
from typing import Any, ClassVar, Final, NamedTuple

import structlog

from streamtable import Avro, Count, Group, SingleObject, String, Typed
from streamtable.base.deadletter import ORIGIN_TOPIC
from streamtable.errors import StreamtableError
from streamtable.flow.joins.foreign_key import PartsCodec
from streamtable.graph.group import HANDLED, IDS, STATES
from streamtable_spark.errors import ConfigurationError
from streamtable_spark.graphs import codec_of, groups_of, load
from streamtable_spark.transforms.avro import AvroCodec
from streamtable_spark.transforms.codecs import PlainCodec
from streamtable_spark.transforms.tables import unversioned
from streamtable_testing.replay import TABLE, Replay
from streamtable_testing.topic import InMemoryMessage

SCHEMA: Final = "name string, partition int, key binary, value binary"
SUMMARY: Final = ""
"""The name of the rows that summarize a partition, beside the names of tables; see `Summary`."""
FAILED: Final = "the group's handlers have failed: "
_ENGINES_OWN: Final = frozenset({IDS, HANDLED, STATES})


@dataclass(frozen=True)
class Program:
    """A group whose handlers are run over history; can be sent to Spark's workers.

    Attributes:
        graph: MODULE:NAME, where the workers find it too.
        name: The name of the group in that program.
        arguments: The arguments of NAME, if it is a function.
        inputs: The names of its inputs, the loop included.
        loop: The name of its loop; None if it has none.
        joins: The names of the tables that it joins.
        changes: The names of those joined tables whose changes it handles.
        context: The names of the tables that it looks up.
        retry: The name of its retries.
        tables: The ends of the names of its tables' topics: `table` is the group's own.
        answers: The inputs that the two sides of a foreign-key join exchange. They carry the event time of the row that
            they are about, which may be before the timestamp of its record, so their records are handled after all others:
            an answer is matched with its row by a version, and the last one counts.
    """

    graph: str
    name: str
    arguments: tuple[str, ...]
    inputs: tuple[str, ...]
    loop: str | None
    joins: tuple[str, ...]
    changes: tuple[str, ...]
    context: tuple[str, ...]
    retry: str
    tables: tuple[str, ...]
    answers: tuple[str, ...] = ()
    fields: ClassVar[tuple[str, ...]] = ()  # whole rows are compared

    @property
    def compared(self) -> tuple[str, ...]:
        """The tables whose rows an audit compares: not the engine's own, whose layout depends on when it has committed."""
        return tuple(name for name in self.tables if name not in _ENGINES_OWN)

    def load(self) -> Group[Any, Any]:
        """Return the group. Raises `ConfigurationError` where the module is not there."""
        return _chosen(groups_of(load(self.graph), self.graph, *self.arguments), self.name)

    def text_of(self, table: str, key: bytes, value: bytes | None) -> tuple[str, str | None]:
        """Return a key and a row of a table as text for people; bytes that cannot be decoded in hexadecimal digits."""
        key_codec, value_codec = _codecs(self.load(), table, key)
        return _as_text(key_codec, key), None if value is None else _as_text(value_codec, value)

    def is_record(self, table: str, key: bytes) -> bool:
        """Return whether a row of a micro-batch is the record of its kinds, which names the schemas of all versions that have run."""
        return table == TABLE and key.startswith(b"\0") and hasattr(self.load(), "rows")

    def same(self, table: str, key: bytes, one: bytes, other: bytes) -> bool:
        """Return whether two rows are the same, also if their bytes differ: the fields of JSON may be in another order."""
        if one == other or self.is_record(table, key):
            return True
        _, codec = _codecs(self.load(), table, key)
        try:
            return _exact(codec, one) == _exact(codec, other)
        except StreamtableError:
            return False


def program_of(graph: str, group: str) -> Program:
    """Find a group.

    Args:
        graph: MODULE:NAME of a group, a flow, several of them, or a function that makes them for a group's name.
        group: The name of the group, perhaps with a version as a suffix: `orders-v2` computes the same as `orders`.

    Raises:
        ConfigurationError: There is no such group, it keeps no table, it calls other services, or the function fails.
    """
    found = load(graph)
    arguments = (group,) if callable(found) else ()
    chosen = _chosen(groups_of(found, graph, *arguments), group)
    own = (TABLE,) if chosen.persist is not None else ()
    if not chosen.tables:
        raise ConfigurationError(f"group {chosen.name!r} keeps no table: there is nothing to compute")
    # By their settings, since this package does not know `Call`. Inputs that are retried have settings too, without requests.
    if calls := [each.name for each in chosen.timers if hasattr(getattr(each, "settings", None), "request")]:
        raise ConfigurationError(
            f"group {chosen.name!r} calls other services ({', '.join(calls)}), and no topic has their answers: its tables cannot be computed"
        )
    return Program(
        graph=graph,
        name=chosen.name,
        arguments=arguments,
        inputs=tuple(edge.stream.name for edge in chosen.inputs),
        loop=None if chosen.loop is None else chosen.loop.stream.name,
        joins=tuple(edge.table.name for edge in chosen.joins),
        changes=tuple(edge.table.name for edge in chosen.changes),
        context=tuple(edge.table.name for edge in chosen.lookups),
        retry=chosen.retry,
        tables=(*own, *chosen.named_tables),
        answers=tuple(e.stream.name for e in chosen.inputs if isinstance(e.stream.value, PartsCodec)),
    )


def counted(program: Program) -> tuple[str, AvroCodec, str | None, int] | None:
    """Return the count of a group, if Spark has a native form of it: one input with text keys, by `Count()`, into Avro longs.

    Returns:
        The input, the codec of its values, the field that identifies repeated events, and for how many milliseconds;
        None for any other group.
    """
    group = program.load()
    if group.persist is None or len(group.inputs) != 1 or group.joins or group.event_time is not None:
        return None
    (edge,) = group.inputs
    if not isinstance(edge.aggregate, Count) or {*group.tables} - {group.table.name, group.named_topic(IDS)}:
        return None
    value = group.table.value
    # Spark's jobs write the single-object encoding only.
    if not isinstance(value, Avro) or (value.schema.tree, type(value.framing)) != ("long", SingleObject):
        return None
    by = None if edge.once is None else edge.once.by
    texts = isinstance(edge.stream.key, String)  # its query skips other keys
    if not (texts and isinstance(by, str | None) and isinstance(edge.stream.value, Avro)):
        return None
    codec = codec_of(edge.stream, "", PlainCodec("bytes"))  # its own handlers read other values
    if not isinstance(codec, AvroCodec):
        return None
    return edge.stream.name, codec, by, 0 if edge.once is None else edge.once.within_ms


class Summary(NamedTuple):
    """The summary of a partition: the number of handled records, and the event time that each input has reached."""

    events: int
    times: Mapping[str, tuple[int, int]]

    def encode(self) -> bytes:
        return json.dumps([self.events, self.times], default=sorted).encode()  # sets

    @staticmethod
    def decode(data: bytes) -> "Summary":
        events, times = json.loads(data)
        return Summary(events, {topic: tuple(each) for topic, each in times.items()})


Made = tuple[str, int, bytes, bytes]


@dataclass(frozen=True)
class GroupReplay:
    """Computes tables from sorted records, in Spark's workers.

    Attributes:
        program: The group.
        partitions: The number of partitions of its topics.
        now: Seconds since 1970 that handlers see; see `Replay`.
        names: The names that the group gives the topics of the records, by their names in Kafka.
        watermarks: The minimum watermark of each partition at the end by input, in milliseconds.
    """

    program: Program
    partitions: int
    now: float
    names: Mapping[str, str]
    watermarks: Mapping[int, Mapping[str, int]] = field(default_factory=dict)

    def __call__(self, rows: Iterable[Any]) -> Iterator[Made]:
        """Take rows of `task`, `topic`, `partition`, `offset`, `ms`, `key`, `value`, `headers`; return `SCHEMA`."""
        # The logs of Spark's workers are rarely read, and each record that is refused would add a line.
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        group = self.program.load()
        for number, records in groupby(rows, key=lambda row: row["task"]):
            try:
                yield from self._partition(group, number, records)
            except StreamtableError as error:
                # The prefix marks the error of a handler in the text of the error that Spark wraps it in.
                raise RuntimeError(f"{FAILED}{error}") from error

    def _partition(self, group: Group[Any, Any], number: int, rows: Iterable[Any]) -> Iterator[Made]:
        replay = Replay(group, partition=number, partitions=self.partitions, now=self.now)
        handled, sharing = 0, Counter(self.names.values())
        offsets: defaultdict[str, Iterator[int]] = defaultdict(count)
        try:
            for (topic, partition), run in groupby(rows, key=lambda row: (row["topic"], row["partition"])):
                name = self.names[topic]
                # Retries and loops of two groups, if its table was rebuilt from another's, are one topic each here.
                records = [
                    _record(row, next(offsets[name]) if sharing[name] > 1 else row["offset"], self.names)
                    for row in run
                ]
                if name in (self.program.retry, *self.program.inputs):
                    handled += len(records)
                replay.feed(name, records, partition)
            reached = self.watermarks.get(number, {})
            replay.finish({self.names.get(topic, topic): at for topic, at in reached.items()})
            for table, kept in replay.rows.items():
                for key, value in kept.items():
                    yield table, number, key, value
            yield SUMMARY, number, b"", Summary(handled, replay.times()).encode()
        finally:
            replay.close()


def _record(row: Any, offset: int, names: Mapping[str, str]) -> InMemoryMessage:
    headers = [(name, _renamed(name, _bytes(value), names)) for name, value in row["headers"] or ()]
    return InMemoryMessage(offset, _bytes(row["key"]), _bytes(row["value"]), headers, row["ms"], None)


def _bytes(data: Any) -> bytes | None:
    return None if data is None else bytes(data)


def _renamed(header: str, value: bytes | None, names: Mapping[str, str]) -> bytes | None:
    if header != ORIGIN_TOPIC or value is None:
        return value
    text = value.decode(errors="replace")
    return names[text].encode() if text in names else value


def _chosen(groups: list[Group[Any, Any]], name: str) -> Group[Any, Any]:
    of_name = {group.name: group for group in groups}
    if (found := of_name.get(name) or of_name.get(unversioned(name))) is not None:
        return found
    if len(groups) == 1:
        return groups[0]
    names = ", ".join(sorted(of_name))
    raise ConfigurationError(f"the graph has no group {name!r}, and more than one: {names}")


def _codecs(group: Group[Any, Any], table: str, key: bytes) -> tuple[Any, Any]:
    """Return the codecs of the keys and rows of a table."""
    if table != TABLE:
        (state,) = (each for each in group.all_states if each.name == table)
        return state.key, state.value
    # A micro-batch keeps rows of several kinds in one table: the kind is the beginning of a key.
    kinds: Mapping[str, Any] = getattr(group, "rows", {})
    kind = kinds.get(key.partition(b"/")[0].decode(errors="replace"))
    return group.table.key, group.table.value if kind is None else kind.value


def _exact(codec: Any, data: bytes) -> tuple[Any, str]:
    """Return the value, and its text: for Python `True`, 1 and 1.0 are equal, and so are values of a class that says so."""
    value = codec.decode(data)
    written = json.loads(codec.encode(value)) if isinstance(codec, Typed) else value
    return value, json.dumps(written, default=repr, sort_keys=True)


def _as_text(codec: Any, data: bytes) -> str:
    try:
        return json.dumps(codec.decode(data), default=str, ensure_ascii=False)
    except StreamtableError:
        return data.hex()
