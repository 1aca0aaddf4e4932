"""Threads of one process that run and stop together."""

import threading
from collections.abc import Sequence
from typing import Protocol

from streamtable_supervisor.signals import stop_on_signals

_LOOK_SECONDS = 0.2


class Runnable(Protocol):
    """Something that runs until it is stopped, such as a processor."""

    def run(self) -> None: ...
    def stop(self) -> None: ...


def run_together(runnables: Sequence[Runnable]) -> None:
    """Run each in a thread until all have ended. When one ends or fails, or on a signal, all are stopped.

    Raises:
        BaseException: The first error that one of them has raised, when all have ended.
    """
    failures: list[BaseException] = []

    def stop() -> None:
        for runnable in runnables:
            runnable.stop()

    def work(runnable: Runnable) -> None:
        try:
            runnable.run()
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            failures.append(error)
        finally:
            stop()

    threads = [threading.Thread(target=work, args=(r,), name=f"run-{n}") for n, r in enumerate(runnables)]
    with stop_on_signals(stop):
        for thread in threads:
            thread.start()
        for thread in threads:
            # Never without a timeout: a signal that comes just before the main thread blocks does not wake it.
            while thread.is_alive():
                thread.join(_LOOK_SECONDS)
    if failures:
        raise failures[0]
