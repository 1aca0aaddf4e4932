"""Each in a process of its own: memory is the process's."""

import gc
import subprocess
import sys

import pytest

from streamtable.process import relaxed_gc


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
from streamtable.process import trim_heap

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
