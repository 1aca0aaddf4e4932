"""Runs schedules: one by its seed, or many for some time."""

import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any
from unittest.mock import patch

import structlog
from prometheus_client import CollectorRegistry
from tests.simulation.oracle import Wrong
from tests.simulation.scheduler import Scheduler
from tests.simulation.shape import Shape, draw
from tests.simulation.trace import LOG, Trace
from tests.simulation.world import Violation, World

from streamtable.observe import Metrics

Draw = Callable[[Random], Shape]


@dataclass
class Totals:
    """The results of a number of schedules."""

    schedules: int = 0
    steps: int = 0
    commits: int = 0
    crashes: int = 0
    faults: int = 0

    def add(self, world: World) -> None:
        self.schedules += 1
        self.steps += world.steps
        self.commits += sum(books.commits for books in world.books)
        self.crashes += world.crashes
        self.faults += world.adversary.faults

    def __str__(self) -> str:
        return (
            f"{self.schedules:,} schedules, {self.steps:,} steps, {self.commits:,} commits, {self.crashes:,} crashes, "
            f"{self.faults:,} faults"
        )


@dataclass(frozen=True)
class Outcome:
    """A schedule that has been run.

    Attributes:
        broken: The violated invariant; None if there is none.
        cause: The traceback of its cause, if any.
    """

    seed: int
    shape: Shape
    trace: Trace
    broken: str | None
    cause: str
    world: World

    def report(self, last: int = 60) -> str:
        """Format the failure: the violation, the last events, and the command to print all of them."""
        lines = "\n".join(self.trace.lines(last))
        joins = f" --joins\n{self.shape.join}" if self.shape.join is not None else ""
        return (
            f"seed {self.seed}: {self.broken}\n\n{lines}\n\n{self.cause}\n{self.shape}\n"
            f"the whole trace: python -m tests.simulation {self.seed}{joins}"
        )


def run_seed(seed: int, metrics: Metrics, *, log: bool = False, drawn: Draw = draw) -> Outcome:
    """Run a schedule. `log`: include the engine's log lines in the trace; `drawn`: draws its shape."""
    rng = Random(seed)
    world = World(drawn(rng), rng, metrics)
    broken, cause = None, ""
    # Three rows at a time; otherwise a visit would end with its first record.
    with (
        logging_to(world.trace if log else None),
        patch("streamtable.engine.records.dispatch.ROWS_AT_ONCE", 3),
    ):
        try:
            Scheduler(world).run()
        except Violation as violation:
            broken = str(violation)
            if (error := violation.__cause__) is not None and not isinstance(error, Wrong):
                cause = "".join(traceback.format_exception(error))
        world.close()
    return Outcome(seed, world.shape, world.trace, broken, cause, world)


def run_seeds(seeds: Iterable[int], totals: Totals, drawn: Draw = draw) -> Iterator[Outcome]:
    """Run schedule after schedule."""
    metrics = Metrics.register(CollectorRegistry())
    for seed in seeds:
        outcome = run_seed(seed, metrics, drawn=drawn)
        totals.add(outcome.world)
        yield outcome


def first_broken(seeds: Iterable[int], seconds: float, totals: Totals, drawn: Draw = draw) -> Outcome | None:
    """Return the first schedule that violates an invariant; None if none does within this many CPU seconds."""
    end = time.process_time() + seconds
    for outcome in run_seeds(seeds, totals, drawn):
        if outcome.broken is not None:
            return outcome
        if time.process_time() > end:
            return None
    return None


@contextmanager
def logging_to(trace: Trace | None) -> Iterator[None]:
    """Send the engine's log to the trace, or drop it; printing it would cost more than all the rest."""
    before, was_configured = structlog.get_config(), structlog.is_configured()

    def note(_: Any, level: str, event: Any) -> Any:
        if trace is not None:
            facts = dict(event)
            trace.add("", LOG, level, facts.pop("event"), facts)
        raise structlog.DropEvent

    structlog.configure(
        processors=[note],
        wrapper_class=structlog.make_filtering_bound_logger("info" if trace else "critical"),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        if was_configured:
            structlog.configure(**before)
        else:
            structlog.reset_defaults()
