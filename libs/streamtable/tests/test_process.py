"""Each in a process of its own: memory is the process's."""

import gc
import signal
import subprocess
import sys
import threading

import pytest

from streamtable_supervisor.system import relaxed_gc
from streamtable_supervisor.threads import run_together


def printed(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()


def test_rocksdb_is_loaded_only_where_a_table_is_opened() -> None:
    assert printed("import sys, streamtable; print('rocksdict' in sys.modules)") == "False"


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux how much memory a process has")
def test_memory_that_is_free_goes_back_to_the_system() -> None:
    program = """
import re
from pathlib import Path
from streamtable_supervisor.system import trim_heap

def resident_mb():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024

blocks = [bytes(2_000) for _ in range(50_000)]
del blocks[:-1]  # the last one keeps the heap from becoming shorter by itself
before = resident_mb()
trim_heap()
print(before - resident_mb())
"""
    assert int(printed(program)) > 50


def test_garbage_is_looked_for_as_before_once_the_last_of_several_processors_has_stopped() -> None:
    before = gc.get_threshold()
    first, second = relaxed_gc(), relaxed_gc()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold() > before
    second.__exit__(None, None, None)
    assert gc.get_threshold() == before


def test_garbage_is_looked_for_as_before_once_the_work_is_done() -> None:
    before = gc.get_threshold()
    with relaxed_gc():
        assert gc.get_threshold() > before
    assert gc.get_threshold() == before


class _UntilStopped:
    """Runs until it is stopped. Its thread receives a signal first if it is to be signalled."""

    def __init__(self, *, signalled: bool) -> None:
        self._signalled = signalled
        self._stopped = threading.Event()
        self.in_time = True

    def run(self) -> None:
        if self._signalled and not self._stopped.wait(0.3):  # the main thread waits by then
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        self.in_time = self._stopped.wait(30)

    def stop(self) -> None:
        self._stopped.set()


def test_a_signal_that_another_thread_receives_stops_all_that_run_together() -> None:
    """Such a signal does not wake the main thread, as one that comes in the instant before it blocks."""
    first, second = _UntilStopped(signalled=False), _UntilStopped(signalled=True)
    run_together([first, second])
    assert first.in_time
    assert second.in_time
