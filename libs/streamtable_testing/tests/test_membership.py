"""Members whose client has stopped its heartbeats without noticing."""

from typing import Any

import pytest

from streamtable import Context, Group, Input, Long, Persist, Stream, String
from streamtable_testing import Tester
from streamtable_testing.consumer import VirtualGroupConsumer

EVENTS = Stream("events", String(), Long())


def add(ctx: Context[str, int], value: int) -> None:
    ctx.set((ctx.value or 0) + value)


@pytest.mark.parametrize("silent", [True, False])
def test_a_member_that_its_coordinator_does_not_know_joins_the_group_again(
    monkeypatch: pytest.MonkeyPatch, *, silent: bool
) -> None:
    group: Group[str, int] = Group("g", Input(EVENTS, add), Persist(Long()))
    heartbeat, join_again, joins = (
        VirtualGroupConsumer._heartbeat,
        VirtualGroupConsumer.join_again,
        list[Any](),
    )

    def joined(consumer: VirtualGroupConsumer) -> None:
        joins.append(consumer)
        join_again(consumer)

    with Tester(partitions=2) as tester:
        tester.run(group)
        tester.emit_many(EVENTS, [("a", 1), ("b", 2)])
        monkeypatch.setattr(VirtualGroupConsumer, "join_again", joined)
        # As librdkafka after a connection that was lost at the wrong moment; its next client sends them again.
        monkeypatch.setattr(
            VirtualGroupConsumer, "_heartbeat", lambda each: heartbeat(each) if joins or not silent else None
        )
        for _ in range(60):
            tester.advance(4)
        assert len(joins) == silent
        tester.emit_many(EVENTS, [("a", 10), ("b", 20)])
        assert tester.table(group) == {"a": 11, "b": 22}
