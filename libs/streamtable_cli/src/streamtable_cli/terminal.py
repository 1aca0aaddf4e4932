"""Progress of long reads in a terminal: a bar, and notes on standard error."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from streamtable.base.types import TopicPartition
from streamtable_admin.cluster import ReadObserver
from streamtable_cli.output import console, note

BAR_AFTER_S = 1.0


class Terminal(ReadObserver):
    """Observes reads: shows a progress bar for long ones, and reports those that an open transaction has stopped."""

    @contextmanager
    def reading(self, offsets: int) -> Iterator[Callable[[int], None]]:
        """Show the progress over this number of offsets."""
        progress = bar(TextColumn("reading"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        try:
            yield _Advance(progress, offsets)
        finally:
            progress.stop()

    def held_back(self, place: TopicPartition, position: int, end: int) -> None:
        """Report the records beyond the last stable offset."""
        note(
            f"note: {place} is shown up to {position}; an open transaction holds back the records from there to {end}"
        )


def bar(*columns: ProgressColumn) -> Progress:
    """Return a progress bar on standard error, which shows itself on a terminal only."""
    return Progress(*columns, console=console(stderr=True), transient=True, disable=not sys.stderr.isatty())


class _Advance:
    """Moves the bar, which appears only once the read has taken a while."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._total = total
        self._began = time.monotonic()
        self._task: TaskID | None = None

    def __call__(self, done: int) -> None:
        if self._task is None:
            if time.monotonic() - self._began < BAR_AFTER_S:
                return
            self._task = self._progress.add_task("reading", total=self._total)
            self._progress.start()
        self._progress.update(self._task, completed=done)
