"""`call_each`: a call for each record of a flow, whose results are a stream.

    SCORE = Call("score", score, request=ORDER, response=SCORE_CODEC)

    flow = Flow("orders")
    scores = call_each(flow.stream(ORDERS), SCORE)

The results go through a topic of the flow's own. Its readers have a watermark that waits for pending calls, which the watermark of
the group that makes the calls cannot do: its other records go on.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from streamtable import Codec, Context
from streamtable.errors import GraphError
from streamtable.graph.edge import Edge
from streamtable_calls.call import Call
from streamtable_calls.pending import PendingCall

if TYPE_CHECKING:  # programs without flows do not load them
    from streamtable.flow import KeyedStream

K = TypeVar("K")
Q = TypeVar("Q")


def call_each(
    stream: "KeyedStream[K, Q]",
    call: Call[K, Q, Any, Any],
    *edges: Edge[K, Any],
    value: Codec[Any] | None = None,
) -> "KeyedStream[K, Any]":
    """Call an API or a function outside for each record of a flow. Returns the stream of the results.

    A result has the key and the event time of its request. Windows behind it stay open until it is there, or its call has
    failed for good. The results go through the topic `<flow>-<name of the call>`, and what follows is a group of its own.

    Args:
        stream: The requests.
        call: The call. Without `then` the result is the value of the next step; otherwise `then` returns any number of
            values, or None, as the handler of `KeyedStream.process` does. So does `failed`. A text or a dict in the place of a list
            is an error of the handler.
        edges: The edges that `then` and `failed` use: states, joined and looked-up tables, outputs. The group gets them.
        value: The codec of the values; by default the call's `response`, if it has no `then`.

    Raises:
        GraphError: `then` needs `value`, a step has changed the keys, or another step of the flow has the name of the call.
    """
    if value is None and call.then is not None:
        raise GraphError(
            f"call_each() of call {call.name!r} passes on values that its handlers make: give their codec by value="
        )

    def begin(ctx: Context[K, Any], request: Q) -> None:
        ctx.call(handled, request)  # and nothing goes on yet

    def finish(ctx: Context[K, Any], pending: PendingCall) -> None:
        made = call.finish(ctx, pending)
        if isinstance(made, str | bytes | Mapping):
            raise TypeError(
                f"a handler of call {call.name!r} returned one {type(made).__name__}: return a list of values"
            )
        for each in made:
            # The time of the context is not later than the clock, and that of a request may be.
            ctx.emit(results.read_from, ctx.key, each, timestamp_ms=pending.made_ms)

    handled = call.handled_by(finish)
    codec: Codec[Any] = value or call.settings.response
    results = stream.process(begin, handled, *edges, value=codec).repartition(call.name)
    return results
