"""Counting with the library: a `Processor` with its usual settings."""

import os
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
from bench.job import Job
from bench.programs.marks import mark, tell
from bench.programs.watched import Watched

from contracts.records import USER_CLICK, UserClick
from streamtable import (
    App,
    Avro,
    Bytes,
    Context,
    Count,
    Group,
    Guarantee,
    Input,
    Join,
    Kafka,
    Long,
    Lookup,
    Once,
    OnError,
    Output,
    Persist,
    Stream,
    String,
    Table,
    Typed,
)
from streamtable.flow import Flow, Session, Tumbling, WindowedKey
from streamtable.observe import configure_logging

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamtable.engine import GroupProcessor

_LOOK_SECONDS = 0.005
_AMPLIFIED = 4_000  # bytes


def clicks(topic: str) -> Stream[str, UserClick]:
    return Stream(topic, key=String(), value=Avro(USER_CLICK))


def add_one(ctx: Context[str, int], click: UserClick) -> None:
    ctx.set((ctx.value or 0) + 1)


def by_count(name: str, topic: str) -> Group[str, int]:
    """Counts with the built-in aggregate."""
    return Group(name, Input(clicks(topic), aggregate=Count()), Persist(Avro("long")))


def by_count_once(name: str, topic: str) -> Group[str, int]:
    """Counts with the built-in aggregate, without repeated clicks."""
    once: Once[UserClick] = Once(by="id", within=timedelta(hours=24))
    return Group(name, Input(clicks(topic), aggregate=Count(), once=once), Persist(Avro("long")))


def by_record(name: str, topic: str) -> Group[str, int]:
    """Counts with a function that is called for each record."""
    return Group(name, Input(clicks(topic), add_one), Persist(Avro("long")))


class Item(msgspec.Struct):
    """An item of an order."""

    sku: str
    price: float
    count: int


class Order(msgspec.Struct):
    """An order of `bench.orders`."""

    id: str
    user: str
    at: int
    items: list[Item]


def by_typed(name: str, topic: str) -> Group[str, int]:
    """Counts orders with a function that is called for each record, of typed JSON."""

    def count(ctx: Context[str, int], order: Order) -> None:
        ctx.set((ctx.value or 0) + bool(order.items))

    return Group(name, Input(Stream(topic, String(), Typed(Order)), count), Persist(Avro("long")))


def by_failing(name: str, topic: str, percent: int) -> Group[str, int]:
    """Count like `by_record`, but this percentage of the records fails after being counted."""

    def add_or_fail(ctx: Context[str, int], click: UserClick) -> None:
        add_one(ctx, click)
        if ctx.offset % 100 < percent:
            raise ValueError("this one fails")

    return Group(name, Input(clicks(topic), add_or_fail, on_error=OnError.DEAD_LETTER), Persist(Avro("long")))


def by_amplifying(name: str, topic: str) -> Group[str, int]:
    """Count like `by_record`, with an output of four kilobytes for each record."""
    out = Stream(f"{name}-out", String(), Bytes())

    def amplify(ctx: Context[str, int], click: UserClick) -> None:
        add_one(ctx, click)
        ctx.emit(out, ctx.key, bytes(_AMPLIFIED))

    return Group(name, Input(clicks(topic), amplify), Output(out), Persist(Avro("long")))


def by_window(name: str, topic: str) -> Group[str, Any]:
    """Count by user and minute, with a flow."""
    flow = Flow(name)
    minutes = Tumbling(timedelta(minutes=1), grace=timedelta(seconds=10))
    flow.stream(clicks(topic)).group_by_key().window(minutes).count("counts")
    return flow.group()


def by_session(name: str, topic: str) -> Group[str, Any]:
    """Count by user and session, with a flow."""
    flow = Flow(name)
    sessions = Session(timedelta(minutes=1), grace=timedelta(seconds=10))
    flow.stream(clicks(topic)).group_by_key().window(sessions).count("counts")
    return flow.group()


def by_final_window(name: str, topic: str) -> Group[str, Any]:
    """Count by user and ten minutes, and write each count when its window has closed, with a flow."""
    flow = Flow(name)
    minutes = Tumbling(timedelta(minutes=10), grace=timedelta(0))
    counted = flow.stream(clicks(topic)).group_by_key().window(minutes).count("counts")
    counted.final().to(Stream(f"{name}-out", WindowedKey(String(), minutes.size_ms), Long()))
    return flow.group()


def by_other_key(name: str, topic: str) -> Flow:
    """Count by a key from the value, with a flow of two groups."""
    flow = Flow(name)
    flow.stream(clicks(topic)).group_by("by-user", lambda click: click["user_id"], key=String()).count(
        "counts"
    )
    return flow


def by_steps(name: str, topic: str) -> Group[str, Any]:
    """Write the pages of every second user, with a flow."""
    flow = Flow(name)
    even = flow.stream(clicks(topic)).filter(lambda click: click["user_id"][-1] in "02468")
    even.map_values(lambda click: click["url"]).to(Stream(f"{name}-out", String(), String()))
    return flow.group()


def counts(topic: str) -> Table[str, int]:
    """Return another group's table, where each user has a count of one."""
    return Table(topic, String(), Avro("long"))


def by_join(name: str, topic: str, table: str) -> Group[str, int]:
    """Adds up the user's row of a joined table, and emits each sum, which is right only if each row was found."""
    ones, sums = counts(table), Stream(f"{name}-out", String(), Avro("long"))

    def add(ctx: Context[str, int], click: UserClick) -> None:
        total = (ctx.value or 0) + (ctx.join(ones) or 0)
        ctx.set(total)
        ctx.emit(sums, ctx.key, total)

    return Group(name, Input(clicks(topic), add), Join(ones), Output(sums), Persist(Avro("long")))


def by_lookup(name: str, topic: str, table: str) -> Group[str, int]:
    """Adds up the user's row of a table; the process has a full replica of that table."""
    ones = counts(table)

    def add(ctx: Context[str, int], click: UserClick) -> None:
        ctx.set((ctx.value or 0) + (ctx.lookup(ones, ctx.key) or 0))

    return Group(name, Input(clicks(topic), add), Lookup(ones), Persist(Avro("long")))


class Run:
    """Run one processor, until the end given by its job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._ended = False
        self._told_of: set[int] = set()
        self._watched = Watched(
            Kafka(job.broker, native=cast("Any", job.native)), (job.topic,), job.records, self._last
        )
        self.processor = App(self._watched, Path(job.state_dir)).processor(
            self._group(),
            instance_id=job.instance,
            standby=bool(job.standby),
            guarantee=Guarantee(job.guarantee),
            commit_interval=job.commit_ms / 1000,
        )

    def run(self) -> None:
        if self._job.until == "ready":
            threading.Thread(target=self._wait_ready, daemon=True).start()
        if self._job.until in ("killed", "shared"):
            threading.Thread(target=self._wait_shared, daemon=True).start()
        self.processor.run()
        if self._job.handler == "final":
            tell({"longest_pause_ms": self._watched.pauses.longest * 1000})

    def _group(self) -> Group[str, Any]:
        name, topic = self._job.group, self._job.topic
        if self._job.until == "killed":
            return Group(name, Input(clicks(topic), self._told), Persist(Avro("long")))
        if self._job.until == "handled":
            return Group(name, Input(clicks(topic), self._handled), Persist(Avro("long")))
        return _graph(name, topic, self._job)

    def _handled(self, ctx: Context[str, int], click: UserClick) -> None:
        add_one(ctx, click)
        if not self._ended:
            self._ended = True
            mark("handled")
            self.processor.stop()

    def _told(self, ctx: Context[str, int], click: UserClick) -> None:
        add_one(ctx, click)
        if ctx.partition not in self._told_of:
            self._told_of.add(ctx.partition)
            mark(f"handled_{ctx.partition}")

    def _last(self) -> None:
        # It still handles and commits the fetched records; only the wait for the next commit is skipped.
        if self._job.until == "last":
            self.processor.stop()

    def _wait_ready(self) -> None:
        while not self.processor.ready:
            time.sleep(_LOOK_SECONDS)
        mark("ready")
        self.processor.stop()

    def _wait_shared(self) -> None:
        """Wait until all processes have the same number of partitions, and the replicas are current."""
        while not self._shared():
            time.sleep(_LOOK_SECONDS)
        mark("shared")

    def _shared(self) -> bool:
        member = cast("GroupProcessor", self.processor).member
        if member is None or self._job.clients * len(member.assignment.tasks) != self._job.partitions:
            return False
        return member.ready and member.restorer.standby.settled


def _graph(name: str, topic: str, job: Job) -> Group[str, Any]:
    graphs: dict[str, Callable[[], Group[str, Any]]] = {
        "count": lambda: by_count(name, topic),
        "count_once": lambda: by_count_once(name, topic),
        "record": lambda: by_record(name, topic),
        "typed": lambda: by_typed(name, topic),
        "join": lambda: by_join(name, topic, job.table),
        "lookup": lambda: by_lookup(name, topic, job.table),
        "amplify": lambda: by_amplifying(name, topic),
        "window": lambda: by_window(name, topic),
        "session": lambda: by_session(name, topic),
        "final": lambda: by_final_window(name, topic),
        "key_by": lambda: by_other_key(name, topic).group(),
        "key_by_count": lambda: by_other_key(name.removesuffix("-by-user"), topic).group("by-user"),
        "steps": lambda: by_steps(name, topic),
    }
    if job.handler.startswith("failing_"):
        return by_failing(name, topic, int(job.handler.removeprefix("failing_")))
    return graphs[job.handler]()


if __name__ == "__main__":
    configure_logging("json", "warning", sys.stderr)
    Run(Job.from_environment(os.environ)).run()
