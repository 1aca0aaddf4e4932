"""The command line of click counting with a planted bug, which the edge tests must find.

EDGE_PLANT selects the bug. Everything else is as in `click_count.main`.
"""

import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from threading import Thread
from typing import Any, Final

from click_count import main as click_count
from click_count import topics
from servicekit.http import produce
from streamtable.base.types import Ack
from streamtable.errors import StreamtableError

PAUSE_SECONDS: Final = 0.2


def sends_after_it_has_said_not_sent() -> None:
    """Records for which the queue was full are sent after the response."""
    report = produce.Sending.report

    def report_and_send(self: produce.Sending[Any]) -> produce.SendReport:
        found = report(self)
        late = [each for each in self._outgoing if each.id in found.not_sent]

        def send() -> None:
            while late:
                try:
                    self._emitter.emit(late[-1].user, late[-1].record).result()
                except StreamtableError:  # the queue is still full
                    time.sleep(PAUSE_SECONDS)
                else:
                    late.pop()

        Thread(target=send, daemon=True).start()
        return found

    produce.Sending.report = report_and_send  # type: ignore[method-assign] # that is the fault


def accepts_before_it_is_acknowledged() -> None:
    """Records in flight are reported as stored."""
    add = produce.SendReport.add

    def add_as_stored(self: produce.SendReport, identity: str, future: Future[Ack] | None) -> None:
        if future is None or not future.done():
            self.accepted.append({"id": identity, "partition": 0, "offset": 0, "token": ""})
        else:
            add(self, identity, future)

    produce.SendReport.add = add_as_stored  # type: ignore[method-assign] # that is the fault


def counts_each_time() -> None:
    """The processor ignores ids."""
    topics.ONCE = None  # type: ignore[assignment,misc] # that is the fault


PLANTS: Final[Mapping[str, Callable[[], None]]] = {
    plant.__name__: plant
    for plant in (sends_after_it_has_said_not_sent, accepts_before_it_is_acknowledged, counts_each_time)
}


if __name__ == "__main__":
    PLANTS[os.environ["EDGE_PLANT"]]()
    click_count.main()
