"""A table of a database's changes: by a handler that sets the row of each envelope as it is, and by a `Capture`."""

import os
import sys
from typing import Any

import msgspec
from bench.job import Job
from bench.programs.processor import Run

from streamtable import Context, Group, Input, Json, Persist, Stream
from streamtable.observe import configure_logging
from streamtable_capture import Capture, ConnectKey, Debezium

KEY = ConnectKey(id=int)


class Customer(msgspec.Struct):
    id: int
    name: str
    active: bool
    amount: int
    bio: str | None = None


def set_row(ctx: Context[int, Any], change: Any) -> None:
    ctx.set(change["after"])


def graph(job: Job) -> Group[Any, Any]:
    """Return the group of a job: its handler is `envelope` or `capture`."""
    if job.handler == "capture":
        return Capture(job.group, Stream(job.topic, KEY, Debezium(Customer)))
    changes: Stream[int, Any] = Stream(job.topic, KEY, Json())
    return Group(job.group, Input(changes, set_row), Persist(Json()))


class CapturesRun(Run):
    """Run one of the two."""

    def _group(self) -> Group[str, Any]:
        return graph(self._job)


if __name__ == "__main__":
    configure_logging("json", "warning", sys.stderr)
    CapturesRun(Job.from_environment(os.environ)).run()
