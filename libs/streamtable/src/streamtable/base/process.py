"""The process around a processor: stop on signals, and relieve garbage collection and memory."""

import ctypes
import gc
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from streamtable.base.posix import limit, raise_limit
from streamtable.errors import ConfigurationError
from streamtable_supervisor.signals import stop_signals_to

_COLLECT_AFTER = 100_000  # objects
_LOOK_SECONDS = 0.2
ADDRESS_SPACE_MIN = 2 << 30
"""Bytes of address space. Threads and C libraries reserve 0.5 to 1.3 GB; a tenth of it is memory."""


@contextmanager
def running(stop: Callable[[], object]) -> Iterator[None]:
    """Run a processor in the block: signals stop it. Free memory is returned to the system first, and files may be opened.

    Raises:
        ConfigurationError: The process is allowed too little address space.
    """
    require_address_space()
    trim_heap()
    raise_open_files()
    with stop_on_signals(stop), relaxed_gc():
        yield


@contextmanager
def stop_on_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` on the first signal in the block, as `stop_signals_to` does."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python allows handlers in the main thread only; elsewhere the caller stops it
        return
    with stop_signals_to(lambda _: stop()):
        yield


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


class _Relaxed:
    """Counts the blocks that have relaxed the garbage collector; the last one to end restores it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks = 0
        self._before = (0, 0, 0)

    def enter(self) -> None:
        with self._lock:
            if not self._blocks:
                self._before = gc.get_threshold()
                gc.set_threshold(_COLLECT_AFTER, 20, 100)
            self._blocks += 1

    def leave(self) -> None:
        with self._lock:
            self._blocks -= 1
            if not self._blocks:
                gc.set_threshold(*self._before)


_RELAXED = _Relaxed()  # the collector is the process's, too


@contextmanager
def relaxed_gc() -> Iterator[None]:
    """Run Python's cyclic garbage collector less often within the block.

    Records and rows are plenty and hold no cycles, but each look walks over them: a seventh of the time of a processor
    with many keys.
    """
    _RELAXED.enter()
    try:
        yield
    finally:
        _RELAXED.leave()


def require_address_space() -> None:
    """Refuse a limit that makes C libraries abort the process silently when their threads or buffers find no room.

    Raises:
        ConfigurationError: The limit is too low.
    """
    found = limit("RLIMIT_AS")
    if found is not None and found[0] < ADDRESS_SPACE_MIN:
        raise ConfigurationError(
            f"the limit of address space (RLIMIT_AS, `ulimit -v`) is {found[0] >> 20} MiB, and {ADDRESS_SPACE_MIN >> 20} MiB are "
            "needed, most of it only reserved: raise it, and limit memory by a cgroup instead (systemd's MemoryMax)"
        )


def raise_open_files() -> None:
    """Raise the soft limit of open files to the hard limit: a table takes some for each partition, and 1024 are few."""
    raise_limit("RLIMIT_NOFILE")


def trim_heap() -> None:
    """Return free memory to the system. glibc keeps what imports have left, 13 of 80 MB; other C libraries do not."""
    library = None if sys.platform == "win32" else ctypes.CDLL(None)
    trim = getattr(library, "malloc_trim", None)
    if trim is not None:
        trim(0)
