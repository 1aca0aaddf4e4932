"""Joins by a foreign key: each row of the left table names a row of the right one, which may lie in any partition.

The left group subscribes to the rows that its own rows name, through a topic that is partitioned as the right table. The
group of the right table remembers who has subscribed, and answers, at once and whenever the row changes, through a topic
with the partitions of the left table. An answer bears the version of the subscription that it is for: one that comes
after the left row has turned to another key is dropped.

A subscription carries the partition that asks, and its answers go to that partition, as in Kafka Streams (KIP-775). So the
records of the left table may be in any partitions, as long as all records of a key are in the same one. A right row is
looked for in the partition of its key. Subscriptions from before they carried it are answered in the partition of the left key.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Any

from streamtable.base.decoding import ItemCodec, codec_name
from streamtable.base.keys import after_prefix
from streamtable.base.ports import Codec
from streamtable.base.topics import Stream
from streamtable.codec import Bytes
from streamtable.errors import DeserializationError
from streamtable.flow.joins.rules import LEFT
from streamtable.flow.joins.tables import joined_rows, marked_changes, refuse_windowed
from streamtable.flow.plan.columns import Columns, Scope, timestamps_of
from streamtable.flow.plan.nodes import Node, Source
from streamtable.flow.plan.plan import Plan
from streamtable.flow.sides import Part, packed, unpacked
from streamtable.graph.group import Input, Output
from streamtable.graph.state import State
from streamtable.handlers.state_table import StateRows

_LENGTH = Struct(">I")
_VERSION = Struct(">Q")
_PARTITION_BYTES = 4
_ROW, _LAST = b"r", b"v"
"""The prefixes of keys in the state of the left group: for a row, and for the last version that was assigned."""
_RIGHT, _SUBSCRIBER = b"r", b"s"
"""The prefixes of keys in the state of the right group: for a row of the right table, and for a subscription to it."""


# ---- rows and messages ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parts:
    """A version, and encoded parts.

    Attributes:
        version: The version of a subscription; versions grow within a partition of the left table. 0: none.
        parts: The parts that belong to the version.
    """

    version: int
    parts: tuple[Part, ...] = ()


class PartsCodec(ItemCodec[Parts]):
    """The codec of `Parts`.

    Args:
        count: The number of parts.
        codecs: The identifiers of the codecs of the parts.
        least: The number of parts that an earlier version has written; the others are None then. None: always `count`.
    """

    def __init__(self, count: int, *codecs: str, least: int | None = None) -> None:
        self._count = count
        self._codecs = codecs
        self._least = count if least is None else least

    def encode(self, value: Parts) -> bytes:
        return _VERSION.pack(value.version) + packed(value.parts)

    def decode(self, data: bytes) -> Parts:
        if len(data) < _VERSION.size:
            raise DeserializationError(f"{data!r} is no row of a join by foreign key")
        version: int = _VERSION.unpack_from(data)[0]
        return Parts(version, tuple(unpacked(data[_VERSION.size :], self._count, self._least)))

    def __repr__(self) -> str:
        return f"PartsCodec({', '.join([str(self._count), *self._codecs])})"


# ---- the join -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ForeignKeyJoin:
    """A join by a foreign key.

    Args:
        operator: The name of the operator: "join" or "left_join".
        name: The name of the step.
        on: Takes the key of the right row from the left row; None: it has none.
        function: Called with the left and the right row; None for a right one that is not there.
        keys: The codecs of the keys of both tables.
        values: The codecs of the rows of both tables.
    """

    operator: str
    name: str
    on: Callable[[Any], Any]
    function: Callable[..., Any]
    keys: tuple[Codec[Any], Codec[Any]]
    values: tuple[Codec[Any], Codec[Any]]

    def added(self, plan: Plan, nodes: tuple[Node, Node]) -> Node:
        """Add the join to a flow. Returns the node of its changes. Raises `GraphError`."""
        for key in self.keys:
            refuse_windowed(self.operator, key)
        name, (left_key, right_key) = self.name, self.keys
        for each in (name, f"{name}-subscriptions", f"{name}-answers"):
            plan.claim(each, f"{self.operator} by foreign key")
        left_group, right_group = (node.group for node in nodes)
        meaning = f"{self.operator} by foreign key"
        codecs = [codec_name(codec) for codec in (*self.keys, *self.values)]
        rows: State[bytes, Parts] = State(name, key=Bytes(), value=PartsCodec(3, *codecs), meaning=meaning)
        subscribers: State[bytes, Parts] = State(
            f"{name}-subscribers", key=Bytes(), value=PartsCodec(1, *codecs), meaning=meaning
        )
        asking: Stream[Any, Parts] = Stream(
            f"{plan.name}-{name}-subscriptions",
            right_key,
            PartsCodec(2, least=1),
            plan.partitioner_of(right_group),
        )
        answering: Stream[Any, Parts] = Stream(
            f"{plan.name}-{name}-answers", left_key, PartsCodec(1), plan.partitioner_of(left_group)
        )
        left = Left(self, rows, asking)
        right = Right(self, subscribers, answering)

        asked = self._source(plan, right_group, asking)
        of_rows = plan.add(f"right of {name!r}", nodes[1], step=marked_changes(LEFT))
        edges = subscribers, Output(answering, event_times=True)
        plan.add(f"answer {name!r}", asked, of_rows, step=right.step, edges=edges, feeds=answering.name)
        answers = self._source(plan, left_group, answering, any_partition=True)
        of_left = plan.add(f"left of {name!r}", nodes[0], step=marked_changes(LEFT))
        label = f"{self.operator} {name!r} by foreign key"
        edges = rows, Output(asking, event_times=True)
        return plan.add(label, of_left, answers, step=left.step, edges=edges, feeds=asking.name)

    def _source(self, plan: Plan, group: str, stream: Stream[Any, Any], **more: Any) -> Node:
        source = Source(
            stream, lambda handler: Input(stream, on_error=plan.on_error, purge=True, **more, **handler)
        )
        return plan.source(group, source)


@dataclass(frozen=True)
class Left:
    """The step of the left group: it subscribes, and joins its rows with the answers.

    Of each row of the left table it keeps the version of its subscription, the encoded row, the encoded foreign key, and
    the last answer; None until there is one.

    Args:
        join: The join.
        state: The rows of the left table, with their subscriptions.
        asking: The stream of the subscriptions that it writes.
    """

    join: ForeignKeyJoin
    state: State[bytes, Parts]
    asking: Stream[Any, Parts]

    def step(self, scope: Scope, records: Columns) -> Columns:
        """Follow changes of left rows, each a pair, and answers. Returns one change for each key, as `TableJoin` does."""
        keys = records.encoded_keys
        local = [_ROW + key for key in keys]
        table = scope.table(self.state).raw
        rows = table.changing(local)
        last_of = dict(zip(local, range(len(keys)), strict=True))
        before = {key: rows[key] for key in last_of}
        asker = scope.partition.to_bytes(_PARTITION_BYTES)
        sent: list[tuple[bytes, Parts, int]] = []
        for index, (key, raw, value) in enumerate(zip(local, keys, records.values, strict=True)):
            if isinstance(value, Parts):
                self._answered(rows, key, value)
            else:
                sent.extend(
                    (fk, Parts(version, (raw, asker)), index)
                    for fk, version in self._changed(table, rows, key, value[1])
                )
        if sent:
            scope.emit_many(
                self.asking,
                (),
                [message for _, message, _ in sent],
                raw_keys=[fk for fk, _, _ in sent],
                timestamps_ms=timestamps_of([records.times[at] for _, _, at in sent]),
            )
        changed = last_of if scope.repeats else [key for key in last_of if rows[key] != before[key]]
        order = sorted(changed, key=last_of.__getitem__)
        made = records.at([last_of[key] for key in order])
        function, values = self.join.function, self.join.values
        news = joined_rows(function, values, [self._parts(rows[key]) for key in order])
        olds = joined_rows(function, values, [self._parts(before[key]) for key in order])
        return made.with_values(news, olds).only_changes()

    def _answered(self, rows: dict[bytes, Parts | None], key: bytes, answer: Parts) -> None:
        row = rows[key]
        if row is not None and row.version == answer.version:
            left, fk, _ = row.parts
            rows[key] = Parts(row.version, (left, fk, _found(answer.parts[0])))

    def _changed(
        self, table: StateRows[Parts], rows: dict[bytes, Parts | None], key: bytes, row: Any
    ) -> Iterator[tuple[bytes, int]]:
        """Note a change of a left row. Yields the subscriptions to send: encoded foreign key and version; 0: it ends."""
        there = rows[key]
        version, (_, former, right) = (
            (0, (None, None, None)) if there is None else (there.version, there.parts)
        )
        named = None if row is None else self.join.on(row)
        fk = None if named is None else self.join.keys[1].encode(named)
        if fk != former or (there is None and row is not None):
            right = None
            if former is not None:
                yield former, 0
            if fk is None:
                version, right = 0, _found(None)  # there is nothing to wait for
            else:
                last = table.get(_LAST)
                version = 1 if last is None else last.version + 1
                table.put(_LAST, Parts(version, (None, None, None)))
                yield fk, version
        if row is None:
            rows[key] = None
        else:
            rows[key] = Parts(version, (self.join.values[0].encode(row), fk, right))

    def _parts(self, row: Parts | None) -> tuple[Part, Part] | None:
        """Return the left and the right row; None if there is no joined row, or not yet an answer."""
        if row is None:
            return None
        left, _, answer = row.parts
        if answer is None:
            return None
        right = answer[1:] if answer[:1] == _ROW else None
        return None if left is None or (right is None and self.join.operator == "join") else (left, right)


def _found(right: Part) -> bytes:
    """Return an answer as it is kept: whether there is a right row, and which."""
    return b"" if right is None else _ROW + right


@dataclass(frozen=True)
class Right:
    """The step of the right table's group: it remembers the subscribers of each row, and answers.

    Args:
        join: The join.
        state: The rows of the right table, and of each subscription its version and the partition that has asked.
        answering: The stream of the answers that it writes.
    """

    join: ForeignKeyJoin
    state: State[bytes, Parts]
    answering: Stream[Any, Parts]

    def step(self, scope: Scope, records: Columns) -> None:
        """Follow subscriptions, and changes of right rows, each a pair."""
        keys = records.encoded_keys
        table = scope.table(self.state).raw
        sent: list[tuple[bytes, Part, Parts, int]] = []
        for index, (key, value) in enumerate(zip(keys, records.values, strict=True)):
            made = (
                self._asked(table, key, value)
                if isinstance(value, Parts)
                else self._changed(table, key, value[1], even_if_unchanged=scope.repeats)
            )
            sent.extend((left, asker, answer, index) for left, asker, answer in made)
        if sent:
            scope.emit_many(
                self.answering,
                (),
                [answer for _, _, answer, _ in sent],
                raw_keys=[left for left, _, _, _ in sent],
                timestamps_ms=timestamps_of([records.times[at] for *_, at in sent]),
                partitions=[-1 if asker is None else int.from_bytes(asker) for _, asker, _, _ in sent],
            )

    def _asked(
        self, table: StateRows[Parts], key: bytes, asked: Parts
    ) -> Iterator[tuple[bytes, Part, Parts]]:
        left, asker = asked.parts
        assert left is not None, "each subscription names its row"
        subscriber = _subscribers(key) + left
        if not asked.version:
            table.put(subscriber, None)
            return
        table.put(subscriber, Parts(asked.version, (asker,)))
        row = table.get(_RIGHT + key)
        yield left, asker, Parts(asked.version, (None if row is None else row.parts[0],))

    def _changed(
        self, table: StateRows[Parts], key: bytes, row: Any, *, even_if_unchanged: bool
    ) -> Iterator[tuple[bytes, Part, Parts]]:
        after = None if row is None else Parts(0, (self.join.values[1].encode(row),))
        if after == table.get(_RIGHT + key) and not even_if_unchanged:
            return
        data = None if after is None else after.parts[0]
        if after is None:
            table.put(_RIGHT + key, None)
        else:
            table.put(_RIGHT + key, after)
        prefix = _subscribers(key)
        for subscriber, subscribed in table.scan(prefix, after_prefix(prefix)):
            yield subscriber[len(prefix) :], subscribed.parts[0], Parts(subscribed.version, (data,))


def _subscribers(key: bytes) -> bytes:
    """Return the prefix of the keys of the subscribers of a row."""
    return _SUBSCRIBER + _LENGTH.pack(len(key)) + key
