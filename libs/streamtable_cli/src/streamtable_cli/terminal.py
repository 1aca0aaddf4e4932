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
        """Show the progress over this number of offsets, once the read has taken a while."""
        progress = bar(TextColumn("reading"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        task, began = progress.add_task("reading", total=offsets), time.monotonic()

        def advance(done: int) -> None:
            if time.monotonic() - began >= BAR_AFTER_S:
                progress.start()  # does nothing once it has started
            progress.update(task, completed=done)

        try:
            yield advance
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
