"""The joins of a stream, as its methods."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from streamtable.flow.joins import Bounds, Within
from streamtable.flow.nodes import Node
from streamtable.flow.plan import Plan, checked_keys
from streamtable.flow.stream_join import StreamJoin, checked_buffers
from streamtable.ports import Codec

if TYPE_CHECKING:
    from streamtable.flow.stream import KeyedStream

K = TypeVar("K")
V = TypeVar("V")
V2 = TypeVar("V2")
V3 = TypeVar("V3")


class StreamJoins(Generic[K, V]):
    """What a stream can be joined with. `KeyedStream` is one."""

    _plan: Plan
    _node: Node
    _key: Codec[K] | None
    _value: Codec[V] | None

    def join(
        self,
        name: str,
        other: "KeyedStream[K, V2]",
        function: Callable[[V, V2], V3],
        *,
        within: Within,
        grace: timedelta,
        value: Codec[V3] | None = None,
    ) -> "KeyedStream[K, V3]":
        """Join each record with those of another stream that have the same key and are near enough in event time.

        Each pair comes out once, with the later one's event time. Both sides wait in the table `<group>-<name>`, on disk,
        until nothing can match them any more. A value of None matches nothing.

        A record that comes late still matches, unless the other's window was closed: the input of the later one had gone
        past the last time that the other could match, and the grace.

        Args:
            name: The name of the step, and of the table of waiting records.
            other: The right stream, in the same group: see `repartition(beside=)`.
            function: Called with the values of the left and of the right record; returns the new value.
            within: How far the right record may be before and after the left one, both inclusive: a pair of durations,
                or one for both. One may be negative: `(timedelta(0), hour)` takes what comes after only, and
                `(-minute, hour)` what comes at least a minute after.
            grace: How much longer a record's window stays open for records that come late.
            value: The codec of the new values, as of `map_values`.

        Raises:
            GraphError: The streams belong to different groups, or a step has changed the keys or values of one.
        """
        return self._joined("join", name, other, function, within, grace, value)

    def left_join(
        self,
        name: str,
        other: "KeyedStream[K, V2]",
        function: Callable[[V, V2 | None], V3],
        *,
        within: Within,
        grace: timedelta,
        value: Codec[V3] | None = None,
    ) -> "KeyedStream[K, V3]":
        """Join as `join` does; a left record that nothing has matched comes out alone, with None in the other's place.

        It comes out exactly once, with its own event time, when its window has closed and nothing can match it any more:
        when the watermark has passed the last time that it could match, and the grace. So none is ever lost, however late
        it comes.

        A step with windows after it needs a grace of its own that is at least the reach of this join and its grace.
        """
        return self._joined("left_join", name, other, function, within, grace, value)

    def outer_join(
        self,
        name: str,
        other: "KeyedStream[K, V2]",
        function: Callable[[V | None, V2 | None], V3],
        *,
        within: Within,
        grace: timedelta,
        value: Codec[V3] | None = None,
    ) -> "KeyedStream[K, V3]":
        """Join as `left_join` does, where unmatched records of the right stream come out too."""
        return self._joined("outer_join", name, other, function, within, grace, value)

    def _joined(
        self,
        operator: str,
        name: str,
        other: "KeyedStream[K, V2]",
        function: Callable[..., V3],
        within: Within,
        grace: timedelta,
        value: Codec[V3] | None,
    ) -> "KeyedStream[K, V3]":
        from streamtable.flow.stream import KeyedStream  # noqa: PLC0415 - each is made by the other

        right: StreamJoins[K, Any] = other
        what = f"{operator}({name!r})"
        key = checked_keys(self._key, what)
        checked_keys(right._key, what)
        values = checked_buffers(operator, name, self._value, right._value)
        join = StreamJoin(operator, name, Bounds.of(within, grace), function)
        node = join.added(self._plan, (self._node, right._node), key, values)
        return KeyedStream(self._plan, node, key, value)
