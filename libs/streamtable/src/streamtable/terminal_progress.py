"""Progress bars in a terminal. `observe.progress_on` loads them where there is one."""

from typing import TextIO, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from streamtable.base.log_stream import LogStream


class TerminalProgress:
    """Progress bars at the bottom of a terminal, shown while there are tasks."""

    def __init__(self, stream: TextIO) -> None:
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(file=cast("TextIO", LogStream(stream))),
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}

    def update(self, task: str, done: int, total: int) -> None:
        if task not in self._tasks:
            if not self._tasks:
                self._bars.start()
            self._tasks[task] = self._bars.add_task(task, total=total)
        self._bars.update(self._tasks[task], completed=done, total=total)

    def end(self, task: str) -> None:
        known = self._tasks.pop(task, None)
        if known is not None:
            self._bars.remove_task(known)
            if not self._tasks:
                self._bars.stop()

    def close(self) -> None:
        for task in list(self._tasks):
            self.end(task)
