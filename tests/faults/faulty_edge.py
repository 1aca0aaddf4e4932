"""The command line of click counting with a fault planted in it, which the harness of the edge must find.

EDGE_PLANT names the fault. Everything else is as in `click_count.main`.
"""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from threading import Timer
from typing import Any, Final

from click_count import main as click_count
from click_count import topics
from servicekit.http import produce
from streamtable.types import Ack

LATER_SECONDS: Final = 2.0


def sends_after_it_has_said_not_sent() -> None:
    """What found no room is sent after all, when the answer has gone out."""
    report = produce.Sending.report

    def report_and_send(self: produce.Sending[Any]) -> produce.Report:
        found = report(self)
        late = [each for each in self._outgoing if each.id in found.not_sent]

        def send() -> None:
            for each in late:
                self._emitter.emit(each.user, each.record)

        Timer(LATER_SECONDS, send).start()
        return found

    produce.Sending.report = report_and_send  # type: ignore[method-assign] # that is the fault


def accepts_before_it_is_acknowledged() -> None:
    """What is on its way counts as stored."""
    add = produce.Report.add

    def add_as_stored(self: produce.Report, identity: str, future: Future[Ack] | None) -> None:
        if future is None or not future.done():
            self.accepted.append({"id": identity, "partition": 0, "offset": 0, "token": ""})
        else:
            add(self, identity, future)

    produce.Report.add = add_as_stored  # type: ignore[method-assign] # that is the fault


def counts_each_time() -> None:
    """The processor does not look at ids."""
    topics.ONCE = None  # type: ignore[assignment,misc] # that is the fault


PLANTS: Final[Mapping[str, Callable[[], None]]] = {
    plant.__name__: plant
    for plant in (sends_after_it_has_said_not_sent, accepts_before_it_is_acknowledged, counts_each_time)
}


if __name__ == "__main__":
    PLANTS[os.environ["EDGE_PLANT"]]()
    click_count.main()
