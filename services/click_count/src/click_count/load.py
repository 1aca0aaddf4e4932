"""The load generator: clicks at a given rate, of users chosen evenly or by Zipf's law, always the same for a seed."""

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from threading import Lock
from typing import Final
from uuid import UUID

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from click_count.domain import key_choice
from click_count.emitter import ClickEmitter
from contracts.records import UserClick
from streamtable.errors import StreamtableError
from streamtable.types import Ack

_TICK_SECONDS: Final = 0.01
_BATCH: Final = 1000


@dataclass(frozen=True)
class Load:
    """What to send.

    Attributes:
        rate: clicks a second; 0: as fast as it goes.
        keys: number of users.
        skew: exponent of Zipf's law; 0: all alike.
        count: of clicks; None: until `seconds` are over.
        seconds: None: until `count` clicks are sent. Without both: until stopped.
        seed: of all that is chosen.
    """

    rate: float = 1000.0
    keys: int = 1000
    skew: float = 0.0
    count: int | None = None
    seconds: float | None = None
    seed: int = 1


@dataclass
class Report:
    """What has become of the clicks. The counters are written by the producer's thread."""

    sent: int = 0
    acknowledged: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def answered(self, future: Future[Ack]) -> None:
        error = future.exception()
        with self.lock:
            if error is None:
                self.acknowledged += 1
            else:
                self.errors[type(error).__name__] = self.errors.get(type(error).__name__, 0) + 1

    def text(self, seconds: float) -> str:
        """For people; `seconds` from the first click to the last acknowledgement."""
        rate = self.acknowledged / seconds if seconds > 0 else 0.0
        failed = ", ".join(f"{count} {name}" for name, count in sorted(self.errors.items())) or "none"
        return (
            f"sent {self.sent}, acknowledged {self.acknowledged} in {seconds:.1f} s: {rate:,.0f} clicks/s; "
            f"errors: {failed}"
        )


def clicks(load: Load, now_ms: Callable[[], int]) -> Iterator[UserClick]:
    """The clicks of a load, without end. Everything but their times follows from the seed."""
    choose = key_choice(load.keys, load.skew, load.seed)
    random = Random(load.seed)  # noqa: S311 a load is to be repeatable, not unpredictable
    while True:
        identity = UUID(int=random.getrandbits(128), version=4)
        user = choose()
        yield UserClick(id=str(identity), user_id=user, url=f"https://example.org/{user}", at=now_ms())


def send(
    load: Load, emitter: ClickEmitter, stopped: Callable[[float], bool], progress: Callable[[int], None]
) -> Report:
    """Send a load; the caller then waits for the acknowledgements.

    Args:
        load: what to send.
        emitter: where to; it waits while its queue is full.
        stopped: waits so many seconds and says whether to stop.
        progress: told how many were sent.
    """
    report = Report()
    begun = time.monotonic()
    source = clicks(load, lambda: time.time_ns() // 1_000_000)
    while not stopped(0.0):
        elapsed = time.monotonic() - begun
        if load.seconds is not None and elapsed >= load.seconds:
            break
        due = _BATCH if load.rate == 0 else min(_BATCH, int(load.rate * elapsed) + 1 - report.sent)
        if load.count is not None:
            due = min(due, load.count - report.sent)
            if report.sent >= load.count:
                break
        for _, click in zip(range(due), source, strict=False):
            _emit(emitter, click, report)
        progress(report.sent)
        if load.rate > 0 and due < _BATCH and stopped(_TICK_SECONDS):
            break
    return report


def _emit(emitter: ClickEmitter, click: UserClick, report: Report) -> None:
    report.sent += 1
    try:
        emitter.emit(click["user_id"], click).add_done_callback(report.answered)
    except StreamtableError as error:
        failed: Future[Ack] = Future()
        failed.set_exception(error)
        report.answered(failed)


def _show_nothing(sent: int) -> None:
    del sent


@contextmanager
def progress_bar(load: Load) -> Iterator[Callable[[int], None]]:
    """A bar on standard error if that is a terminal; yields a function that is told how many were sent."""
    if not sys.stderr.isatty():
        yield _show_nothing
        return
    total = load.count
    if total is None and load.seconds is not None and load.rate > 0:
        total = int(load.rate * load.seconds)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("clicks", total=total)
        yield lambda sent: bars.update(task, completed=sent)
