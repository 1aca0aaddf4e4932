"""Sinks of the tables and streams of a flow run with the flow."""

from datetime import timedelta
from typing import Any

import pytest

from streamtable import Json, Long, Stream, String
from streamtable.errors import GraphError
from streamtable.flow import Flow, Tumbling
from streamtable_sinks import MemoryTarget, Sink
from streamtable_testing import Tester

CLICKS: Stream[str, Any] = Stream("clicks", String(), Json())


def values(target: MemoryTarget) -> list[Any]:
    return [change.value for _, change in target.applied]


def test_the_tables_and_streams_of_a_flow_are_written_with_it(tester: Tester) -> None:
    per_user, clicks, minutes = MemoryTarget(), MemoryTarget(), MemoryTarget()
    flow = Flow("f")
    stream = flow.stream(CLICKS, time=lambda click: click["at"])
    counts = stream.group_by_key().count("per-user")
    per_minute = (
        stream.group_by_key().window(Tumbling(timedelta(minutes=1), grace=timedelta(0))).count("per-minute")
    )
    flow.add(Sink("per-user-out", counts.table, per_user, max_wait=0.0))
    flow.add(Sink("clicks-out", stream.filter(lambda click: click["n"]).topic("seen"), clicks, max_wait=0.0))
    flow.add(Sink("minutes-out", per_minute.final().topic("minutes"), minutes, max_wait=0.0))
    assert [group.name for group in flow.groups] == ["f", "per-user-out", "clicks-out", "minutes-out"]
    tester.run(flow)
    for number in (0, 1, 2):
        tester.emit(CLICKS, "ann", {"n": number, "at": number * 30_000})
    tester.advance(3)
    assert values(per_user)[-1] == 3
    assert values(clicks) == [{"n": 1, "at": 30_000}, {"n": 2, "at": 60_000}]
    assert values(minutes) == [2]
    assert [change.timestamp_ms for _, change in clicks.applied] == [30_000, 60_000]


def test_a_topic_needs_codecs_and_a_name_of_its_own() -> None:
    stream = Flow("f").stream(CLICKS)
    changed = stream.map(lambda key, click: (click["n"], click), value=Json())
    with pytest.raises(GraphError, match=r"topic\('numbers'\) writes keys that a step has changed.*by key="):
        changed.topic("numbers")
    with pytest.raises(GraphError, match=r"topic\('a'\) writes values that a step has changed"):
        stream.map_values(len).topic("a")
    numbers = changed.topic("numbers", key=Long())
    assert (numbers.name, type(numbers.key)) == ("f-numbers", Long)
    with pytest.raises(GraphError, match="two steps named 'numbers'"):
        stream.topic("numbers")
