"""Streams of a flow: records by key, and the steps that can follow."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, overload

from streamtable.base.decoding import codec_name
from streamtable.base.keys import form_of
from streamtable.base.ports import Codec, WindowedKeys
from streamtable.base.topics import Stream, legal_codec, legal_key
from streamtable.codec import Avro, Typed
from streamtable.errors import GraphError
from streamtable.flow import steps
from streamtable.flow.checks import check_function, check_part
from streamtable.flow.folds.folds import Retractable
from streamtable.flow.plan.nodes import Node, Source, by_batches, sources_of
from streamtable.flow.plan.plan import Plan, checked_keys, copartitioned
from streamtable.flow.stream_joins import StreamJoins
from streamtable.flow.table import KeyedTable, kept_table
from streamtable.flow.windows.keys import check_matching, check_written
from streamtable.graph.aggregate import Last
from streamtable.graph.edge import Edge
from streamtable.graph.group import Input, Output
from streamtable.handlers.context import Context

if TYPE_CHECKING:
    from streamtable.flow.grouped import GroupedStream

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")

Beside = Union["KeyedStream[Any, Any]", KeyedTable[Any, Any]]


class KeyedStream(StreamJoins[K, V]):
    """Records with keys of type `K` and values of type `V`, in the middle of a flow.

    Each method adds a step and returns its output; the stream itself does not change and can be used again.
    Functions passed to steps must be deterministic: after a crash they are called again with the same records.
    They must not change a value in place: other steps and the state of joins use the same object. Only the row of
    `aggregate` and `reduce`, their first argument, may be changed.

    Streams are made by `Flow.stream` and by steps, not by programs.
    """

    def __init__(self, plan: Plan, node: Node, key: Codec[K] | None, value: Codec[V] | None) -> None:
        self._plan = plan
        self._node = node
        self._key = key  # None: the keys have been changed, and the records are not partitioned by them
        self._value = value  # None: no codec is known for the values
        if value is not None:
            legal_codec(value, "value", node.label)

    # ---- one to one, to some, to many ---------------------------------------------------------------------------------

    @overload
    def filter(self, predicate: Callable[[V], object]) -> "KeyedStream[K, V]": ...
    @overload
    def filter(
        self, predicate: Callable[[K, V], object], *, with_key: Literal[True]
    ) -> "KeyedStream[K, V]": ...
    def filter(self, predicate: Callable[..., object], *, with_key: bool = False) -> "KeyedStream[K, V]":
        """Keep the records for whose value the predicate is true.

        Args:
            predicate: Called with the value, or with key and value.
            with_key: Call it with key and value.
        """
        step = steps.filter_values(predicate, with_key=with_key)
        return self._made(self._add("filter", step), self._key, self._value)

    @overload
    def map_values(
        self, function: Callable[[V], V2], *, value: Codec[V2] | None = None
    ) -> "KeyedStream[K, V2]": ...
    @overload
    def map_values(
        self, function: Callable[[K, V], V2], *, with_key: Literal[True], value: Codec[V2] | None = None
    ) -> "KeyedStream[K, V2]": ...
    def map_values(
        self, function: Callable[..., V2], *, with_key: bool = False, value: Codec[V2] | None = None
    ) -> "KeyedStream[K, V2]":
        """Replace each value by the result of the function. Keys do not change, so the records stay in their partitions.

        Args:
            function: Called with the value, or with key and value.
            with_key: Call it with key and value.
            value: The codec of the new values, for a step behind that writes them to a topic of the flow's own.
        """
        step = steps.map_values(function, with_key=with_key)
        return self._made(self._add("map_values", step), self._key, value)

    @overload
    def flat_map_values(
        self, function: Callable[[V], Iterable[V2]], *, value: Codec[V2] | None = None
    ) -> "KeyedStream[K, V2]": ...
    @overload
    def flat_map_values(
        self,
        function: Callable[[K, V], Iterable[V2]],
        *,
        with_key: Literal[True],
        value: Codec[V2] | None = None,
    ) -> "KeyedStream[K, V2]": ...
    def flat_map_values(
        self, function: Callable[..., Iterable[V2]], *, with_key: bool = False, value: Codec[V2] | None = None
    ) -> "KeyedStream[K, V2]":
        """Replace each record by any number of records with the same key. Arguments as in `map_values`."""
        step = steps.flat_map_values(function, with_key=with_key)
        return self._made(self._add("flat_map_values", step), self._key, value)

    def map(
        self, function: Callable[[K, V], tuple[K2, V2]], *, value: Codec[V2] | None = None
    ) -> "KeyedStream[K2, V2]":
        """Replace each record by another, with another key.

        A step that keeps state by key needs `repartition` or `group_by` after it; `to` does not.

        Args:
            function: Returns the new key and the new value.
            value: The codec of the new values, as in `map_values`.
        """
        return self._made(self._add("map", steps.map_pairs(function)), None, value)

    def flat_map(
        self, function: Callable[[K, V], Iterable[tuple[K2, V2]]], *, value: Codec[V2] | None = None
    ) -> "KeyedStream[K2, V2]":
        """Replace each record by any number of others, with other keys. Otherwise as `map`."""
        return self._made(self._add("flat_map", steps.flat_map_pairs(function)), None, value)

    def peek(self, function: Callable[[K, V], object]) -> "KeyedStream[K, V]":
        """Call a function for each record, for its side effects, such as logging or counting.

        After a crash, or when a record of the batch has failed, it is called again for the same records.
        """
        return self._made(self._add("peek", steps.peek(function)), self._key, self._value)

    # ---- branches --------------------------------------------------------------------------------------------------------

    def split(self, *predicates: Callable[[V], object]) -> "tuple[KeyedStream[K, V], ...]":
        """Divide the stream: each record goes to the first branch whose predicate is true for its value.

        Returns:
            One stream for each predicate, and one for the records that match none.
        """
        if not predicates:
            raise GraphError("split() without predicates: give one for each branch but the last")
        mark, takes = steps.branches(predicates)
        marked = self._add("split", mark)
        nodes = [
            self._plan.add(f"branch {number}", marked, step=take) for number, take in enumerate(takes, 1)
        ]
        return tuple(self._made(node, self._key, self._value) for node in nodes)

    def merge(self, *others: "KeyedStream[K, V]", value: Codec[V] | None = None) -> "KeyedStream[K, V]":
        """Return the records of this and of other streams. Records of the same input stay in its order.

        Args:
            others: The other streams.
            value: The codec of the values, as in `map_values`, where these have different ones.

        Raises:
            GraphError: The streams belong to different groups: their keys are partitioned differently.
        """
        for other in others:
            check_part(self._plan, other, "merge()", KeyedStream)
        streams = [self, *others]
        nodes, keys, values = zip(*((s._node, s._key, s._value) for s in streams), strict=True)  # noqa: SLF001 - of this class
        copartitioned(nodes)
        if None not in keys:
            for each in keys[1:]:
                check_matching("merge()", keys[0], each)
        node = self._plan.add("merge", *nodes)
        key = None if None in keys else self._key
        same = all(type(each) is type(self._value) and _parts(each) == _parts(self._value) for each in values)
        return self._made(node, key, value or (self._value if same else None))

    # ---- other keys --------------------------------------------------------------------------------------------------------

    def repartition(
        self,
        name: str,
        *,
        key: Codec[K] | None = None,
        value: Codec[V] | None = None,
        beside: Beside | None = None,
    ) -> "KeyedStream[K, V]":
        """Send the records through a topic of the flow's own, `<flow>-<name>`, partitioned by their keys.

        What follows is a group of its own, named as the topic, and may run in as many processes as it has partitions.
        Records keep their event time.

        Args:
            name: The name of the step.
            key: The codec of the keys; by default that which they have.
            value: The codec of the values; by default that which they have.
            beside: A stream or table that the records are to be joined or merged with: they are read by its group, and
                their topic needs as many partitions as it has.

        Raises:
            GraphError: No codec is known for keys or values: give it.
        """
        check_written(f"repartition({name!r})", self._key, key)
        key, value = key or self._key, value or self._value
        return through(self._plan, self._node, name, "repartition", key, value, beside)

    def key_by(
        self,
        name: str,
        function: Callable[[V], K2],
        *,
        key: Codec[K2],
        value: Codec[V] | None = None,
        beside: Beside | None = None,
    ) -> "KeyedStream[K2, V]":
        """Give each record the key that a function takes from its value, and partition them by it.

        Args:
            name: The name of the step: see `repartition`.
            function: Returns the key.
            key: The codec of the keys.
            value: The codec of the values; by default that which they have.
            beside: As in `repartition`.
        """
        check_function(function, f"key_by({name!r}) has function", "takes the key from the value")
        node = self._add("key_by", steps.map_pairs(lambda _, each: (function(each), each)))
        return through(self._plan, node, name, "key_by", key, value or self._value, beside)

    def group_by(
        self,
        name: str,
        function: Callable[[V], K2],
        *,
        key: Codec[K2],
        value: Codec[V] | None = None,
        beside: Beside | None = None,
    ) -> "GroupedStream[K2, V]":
        """Group the records by a key that a function takes from the value: `key_by` and then `group_by_key`."""
        return self.key_by(name, function, key=key, value=value, beside=beside).group_by_key()

    def group_by_key(self) -> "GroupedStream[K, V]":
        """Group the records by their keys, to count or aggregate them.

        Raises:
            GraphError: A step has changed the keys: see `repartition`.
        """
        from streamtable.flow.grouped import GroupedStream  # noqa: PLC0415 - each is made by the other

        return GroupedStream(self._plan, self._node, checked_keys(self._key, "group_by_key()"), self._value)

    @property
    def read_from(self) -> Stream[K, V]:
        """The topic that the records are read from, behind `repartition` and `key_by`.

        The group before may `emit` to it too, such as a timer of its `process`, with an event time of its choice. The watermark
        behind it waits for timers in event time and calls that are pending, but for no timers of the wall clock.

        Raises:
            GraphError: This stream is not the first of its group.
        """
        topic = self._node.source and self._node.source.topic
        if not isinstance(topic, Stream):
            raise GraphError(f"read_from of {self._node.label!r}, which reads no topic: repartition() it")
        return topic

    # ---- ends --------------------------------------------------------------------------------------------------------------

    @overload
    def to(self: "KeyedStream[K, V2 | None]", stream: Stream[K, V2]) -> None: ...
    @overload
    def to(self, stream: Stream[K, V]) -> None: ...
    @overload
    def to(
        self, stream: Callable[[K, V], Stream[K, V] | None], *, streams: Iterable[Stream[K, V]]
    ) -> None: ...
    def to(
        self,
        stream: Stream[Any, Any] | Callable[[K, V], Stream[Any, Any] | None],
        *,
        streams: Iterable[Stream[Any, Any]] = (),
    ) -> None:
        """Write the records to a stream; their event times are its timestamps. A value of None is a tombstone.

        Two branches that write to the same stream keep the order of their input only if they are merged before.

        Args:
            stream: The stream, or a function that chooses it for each record; None: the record is not written.
            streams: All streams that the function may choose.

        Raises:
            GraphError: The codec of a stream's keys cannot write these keys, or would read them as those of other windows.
        """
        if isinstance(stream, Stream):
            targets, step = [stream], steps.send(stream)
        else:
            check_function(stream, "to() has stream", "chooses one, or the Stream itself")
            targets = list(streams)
            step = steps.send_chosen(stream, targets)
        if not targets:
            raise GraphError("to() with a function that chooses: name all that it may choose by streams=")
        label = "to " + ", ".join(each.name for each in targets)
        for each in targets:
            check_written(f"to({each.name!r})", self._key, each.key)
        send(self._plan, self._node, label, step, targets)

    def topic(
        self, name: str, *, key: Codec[Any] | None = None, value: Codec[Any] | None = None
    ) -> Stream[Any, Any]:
        """Write the records to a topic of the flow's own, and return it, for another group: `flow.add(Sink("out", late.topic("late"), TARGET))`.

        Args:
            name: The name of the step; its topic is `<flow>-<name>`.
            key: The codec of the keys, if a step has changed them.
            value: The codec of the values, as in `map_values`.
        """
        plan, operator = self._plan, f"topic({name!r})"
        codecs = written_keys(key or self._key, operator), checked_value(value or self._value, operator)
        plan.claim(name, "topic")
        topic = Stream(f"{plan.name}-{name}", *codecs, plan.partitioner_of(self._node.group))
        self.to(topic)
        return topic

    @overload
    def to_table(
        self: "KeyedStream[K, V2 | None]", name: str, *, value: Codec[V2] | None = None
    ) -> KeyedTable[K, V2]: ...
    @overload
    def to_table(self, name: str, *, value: Codec[V] | None = None) -> KeyedTable[K, V]: ...
    def to_table(self, name: str, *, value: Codec[Any] | None = None) -> KeyedTable[K, Any]:
        """Keep the latest value of each key as a table. A value of None deletes the row.

        The latest is the one that has arrived last: a record that is late by its event time replaces the row, too.

        Args:
            name: The name of the table; its topic is `<group>-<name>`.
            value: The codec of the rows; by default the codec of the values.
        """
        key = checked_keys(self._key, f"to_table({name!r})")
        codec = checked_value(value or self._value, f"to_table({name!r})")
        table = kept_table(self._plan, self._node, name, Last(), key, codec, "to_table")
        if not by_batches(self._node, self._plan.nodes):
            table._versions = self._node  # noqa: SLF001 - of this package
        return table

    def process(
        self,
        handler: Callable[[Context[K, Any], V], Iterable[V2] | None],
        *edges: Edge[K, Any],
        value: Codec[V2] | None = None,
    ) -> "KeyedStream[K, V2]":
        """Call a handler for each record, with all that an ordinary handler of a group can do.

        Args:
            handler: Called with the context of the record, and the value. It returns the values for the next step, with the
                record's key, or nothing.
            edges: The edges that the handler uses: states, timers, joined and looked-up tables, outputs. The group gets them.
            value: The codec of the new values, as in `map_values`.

        Raises:
            GraphError: A step has changed the keys, or what comes out of windows or when a time is over has no record: see `repartition`.
        """
        key = checked_keys(self._key, "process()")
        form = form_of(key) if isinstance(key, WindowedKeys) else ""
        read = [each.source for each in sources_of(self._node) if each.source is not None]
        others = any(form and form_of(each.topic.key) != form for each in read)
        if others or any(each.kind in {"closed", "pending"} for each in read):
            raise GraphError(
                "process() after windows, every(), or a left_join(), outer_join() or join_as_of() of a stream: what comes out has no "
                "record to be processed with. Put repartition(name, value=codec) between them"
            )
        node = self._plan.add("process", self._node, step=steps.process(handler), edges=edges, singly=True)
        return self._made(node, key, value)

    # ---- inside --------------------------------------------------------------------------------------------------------------

    def _add(self, label: str, step: Any) -> Node:
        return self._plan.add(label, self._node, step=step)

    def _made(self, node: Node, key: Codec[K2] | None, value: Codec[V2] | None) -> "KeyedStream[K2, V2]":
        return KeyedStream(self._plan, node, key, value)


def through(
    plan: Plan,
    node: Node,
    name: str,
    operator: str,
    key: Codec[K] | None,
    value: Codec[V] | None,
    beside: Beside | None = None,
) -> KeyedStream[K, V]:
    """Send the records of a node through a topic of the flow's own. Returns the stream of the group that reads it."""
    what = f"{operator}({name!r})"
    key, value = written_keys(key, what), checked_value(value, what)
    if beside is not None:
        check_part(plan, beside, f"beside= of {what}", KeyedStream, KeyedTable)
    group = "" if beside is None else beside._node.group  # noqa: SLF001 - of this package
    plan.claim(name, operator)
    topic = Stream(f"{plan.name}-{name}", key, value, plan.partitioner_of(group))
    send(plan, node, f"{operator} {name!r}", steps.send(topic), [topic], feeds=topic.name)
    # What comes through is what a step has sent: a None is the deletion of a row, or what a function has made.
    source = Source(
        topic,
        lambda handler: Input(topic, on_error=plan.on_error, tombstones=True, purge=True, **handler),
        retracts=isinstance(value, Retractable),
    )
    return KeyedStream(plan, plan.source(group or topic.name, source), key, value)


def send(plan: Plan, node: Node, label: str, step: Any, to: Iterable[Stream[Any, Any]], **more: Any) -> None:
    """Add a step that sends records, with their event times."""
    edges = tuple(Output(each, event_times=True) for each in to)
    plan.add(label, node, step=step, edges=edges, **more)


def _parts(codec: Any) -> Any:
    """Return what a codec is made of; the codec itself, if that is not known."""
    if type(codec) in {Avro, Typed}:
        return codec_name(codec), codec._max_bytes  # noqa: SLF001 - of this library; parsers of two of them are never equal
    slots = any(getattr(each, "__slots__", ()) for each in type(codec).__mro__)
    return codec if slots else getattr(codec, "__dict__", codec)


def written_keys(key: Codec[K] | None, operator: str) -> Codec[K]:
    """Return the codec of keys that are written. Raises `GraphError` if none is known."""
    if key is None:
        raise GraphError(
            f"{operator} writes keys that a step has changed, or of a stream that has none: give their codec by key=, and "
            "keys by map() or key_by()"
        )
    legal_key(key, operator)
    return key


def checked_value(value: Codec[V] | None, operator: str) -> Codec[V]:
    """Return the codec of the values. Raises `GraphError` if none is known."""
    if value is None:
        raise GraphError(
            f"{operator} writes values that a step has changed, or that have several codecs: give their codec by value=, here or at that step"
        )
    legal_codec(value, "value", operator)
    return value
