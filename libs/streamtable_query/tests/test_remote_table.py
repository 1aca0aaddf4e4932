import asyncio
import threading
from typing import Any, cast

import pytest

from streamtable import Ack, Group, Input, Json, Persist, Stream, String
from streamtable.errors import NotReady
from streamtable_query import RemoteTable

PATIENT = 30.0
WAITS = 100
EVENTS: Stream[str, Any] = Stream("in", String(), Json())
GROUP: Group[str, Any] = Group("g", Input(EVENTS, lambda ctx, _: ctx.set(1)), Persist(Json()))


class Waiting:
    """A query whose waits end when all have begun."""

    kafka = topic = None
    table = GROUP.table
    not_ready = "it only waits"

    def __init__(self) -> None:
        self.together = threading.Barrier(WAITS)

    def wait_for(self, ack: Ack, timeout: float) -> int:
        try:
            return self.together.wait(timeout)
        except threading.BrokenBarrierError:
            raise NotReady("some have not begun") from None

    def close(self) -> None: ...


def test_many_requests_wait_for_their_writes_at_the_same_time() -> None:
    async def wait(table: RemoteTable[str, Any]) -> None:
        acks = [Ack("in", 0, offset) for offset in range(WAITS)]
        await asyncio.gather(*(table.wait_for_async(ack, PATIENT) for ack in acks))

    with RemoteTable(cast("Any", Waiting())) as table:
        asyncio.run(wait(table))
    with pytest.raises(NotReady, match="it is closed"):
        asyncio.run(wait(table))
