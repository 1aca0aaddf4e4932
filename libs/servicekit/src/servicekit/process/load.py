"""Load generators: records at a given rate, of users chosen uniformly or by Zipf's law, reproducible by a seed."""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random
from threading import Lock
from typing import Final, TypeVar
from uuid import UUID

from streamtable.base.types import Ack
from streamtable.errors import StreamtableError

R = TypeVar("R")
_TICK_SECONDS: Final = 0.01
_BATCH: Final = 1000


@dataclass(frozen=True)
class LoadOptions:
    """The options of a load.

    Attributes:
        rate: The records per second; 0: as fast as possible.
        keys: The number of users.
        skew: The exponent of Zipf's law; 0: uniform.
        count: The number of records to send; None: until `seconds` are over.
        seconds: The duration in seconds; None: until `count` records are sent. Without both: until stopped.
        seed: The seed of all random choices.
    """

    rate: float = 1000.0
    keys: int = 1000
    skew: float = 0.0
    count: int | None = None
    seconds: float | None = None
    seed: int = 1

    @property
    def total(self) -> int:
        """The number of records to send; 0 if it is not known."""
        return self.count or int(self.rate * (self.seconds or 0))


@dataclass
class LoadReport:
    """The outcome of a load. The counters are written by the producer's thread."""

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

    def text(self, seconds: float, what: str) -> str:
        """Return the report as text; `seconds` until the last acknowledgement, `what` names the records in the plural."""
        rate = self.acknowledged / seconds if seconds > 0 else 0.0
        failed = ", ".join(f"{count} {name}" for name, count in sorted(self.errors.items())) or "none"
        return (
            f"sent {self.sent}, acknowledged {self.acknowledged} in {seconds:.1f} s: {rate:,.0f} {what}/s; "
            f"errors: {failed}"
        )


def key_choice(keys: int, skew: float, seed: int) -> Callable[[], str]:
    """Return a function that chooses the user of each next record; the same arguments give the same users.

    Args:
        keys: `user-1` to `user-<keys>`; at least 1.
        skew: The exponent of Zipf's law: user n is chosen in proportion to 1 / n**skew. 0: uniform.
        seed: The seed of the random choices.
    """
    random = Random(seed)  # noqa: S311 a load is to be repeatable, not unpredictable
    if skew == 0:
        return lambda: f"user-{random.randint(1, keys)}"
    cumulative = list(accumulate(1 / n**skew for n in range(1, keys + 1)))
    total = cumulative[-1]
    return lambda: f"user-{bisect_left(cumulative, random.random() * total) + 1}"


def id_choice(seed: int) -> Callable[[], UUID]:
    """Return a function that gives each next record its id; the same seed gives the same ids."""
    random = Random(seed)  # noqa: S311 a load is to be repeatable, not unpredictable
    return lambda: UUID(int=random.getrandbits(128), version=4)


def send(
    load: LoadOptions,
    records: Iterator[tuple[str, R]],
    emit: Callable[[str, R], Future[Ack]],
    stopped: Callable[[float], bool],
    progress: Callable[[int], None],
) -> LoadReport:
    """Send a load; the caller then waits for the acknowledgements.

    Args:
        load: The number and the rate of the records.
        records: Records with their users, without end.
        emit: Sends a record with its key; it waits while the producer's queue is full.
        stopped: Waits this many seconds and returns whether to stop.
        progress: Called with the number of records sent.
    """
    report = LoadReport()
    begun = time.monotonic()
    while not stopped(0.0):
        elapsed = time.monotonic() - begun
        if load.seconds is not None and elapsed >= load.seconds:
            break
        due = _BATCH if load.rate == 0 else min(_BATCH, int(load.rate * elapsed) + 1 - report.sent)
        if load.count is not None:
            due = min(due, load.count - report.sent)
            if report.sent >= load.count:
                break
        for _, (user, record) in zip(range(due), records, strict=False):
            _emit(emit, user, record, report)
        progress(report.sent)
        if load.rate > 0 and due < _BATCH and stopped(_TICK_SECONDS):
            break
    return report


def _emit(emit: Callable[[str, R], Future[Ack]], user: str, record: R, report: LoadReport) -> None:
    report.sent += 1
    try:
        emit(user, record).add_done_callback(report.answered)
    except StreamtableError as error:
        failed: Future[Ack] = Future()
        failed.set_exception(error)
        report.answered(failed)
