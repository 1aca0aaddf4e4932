"""A flow that calls a function outside, on a real broker: its windows wait for results, also over a restart."""

import threading
import time
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

from tests.system.bench import Bench, until
from tests.system.test_flow import MINUTE_MS, running

from streamtable import App, EventTime, Long, Stream, String
from streamtable.flow import Flow, Tumbling, WindowedKey
from streamtable_calls import Call, call_each, call_id


def test_a_window_waits_for_a_call_that_is_pending_over_a_restart(bench: Bench) -> None:
    released, asked = threading.Event(), list[tuple[int, str]]()
    seen: set[int] = set()

    def ask(request: int) -> int:
        asked.append((request, call_id()))
        if request == 1:
            released.wait()
        return request

    orders = Stream(bench.name("orders"), String(), Long())
    out = Stream(bench.name("minutes"), WindowedKey(String(), MINUTE_MS), Long())
    call: Call[str, int, int, Any] = Call("ask", ask, request=Long(), response=Long())
    flow = Flow(bench.name("flow"), event_time=EventTime(idle_after=None))
    results = call_each(flow.stream(orders), call).peek(lambda _, result: seen.add(result))
    windows = results.group_by_key().window(Tumbling(timedelta(minutes=1), grace=timedelta(0)))
    windows.count("per-minute").final().to(out)
    began = (int(time.time() * 1000) - 3_600_000) // MINUTE_MS * MINUTE_MS
    with ExitStack() as stack, App(bench.kafka, bench.folder) as app, app.emitter(orders) as emitter:
        stack.callback(released.set)
        app.create_topics(flow, partitions=1)
        needed = [out.name, *(topic for group in flow.groups for topic in group.input_topics)]
        until(lambda: len(bench.cluster.topics(needed)) == len(needed), "topics exist")
        with running(app, flow):
            for number, (key, minute) in enumerate([("a", 0), ("slow", 0), ("a", 0), ("a", 2), ("b", 5)]):
                emitter.emit_now(key, number, timestamp_ms=began + minute * MINUTE_MS)
            until(lambda: seen == {0, 2, 3, 4}, "all results but one are there")
        released.set()
        with running(app, flow):
            until(lambda: len(bench.read(out.name)) == 3, "all minutes but the last are closed")
        closed = [(out.key.decode(each.key or b""), each.value) for each in bench.read(out.name)]
        assert sorted((key.key, key.start_ms, value) for key, value in closed) == [
            ("a", began, Long().encode(2)),
            ("a", began + 2 * MINUTE_MS, Long().encode(1)),
            ("slow", began, Long().encode(1)),
        ]
    attempts = [each for each in asked if each[0] == 1]
    assert len(attempts) == 2
    assert len(set(attempts)) == 1, "each attempt has the same id"
