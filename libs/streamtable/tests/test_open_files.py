"""The limit of open files is raised, and named where it is too low for the partitions."""

import subprocess
import sys
from pathlib import Path

import pytest

OPENING = """
import resource, sys
from pathlib import Path
from streamtable.errors import StoreBroken
from streamtable.store.rocksdb import RocksStores
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[2])))
stores = RocksStores(Path(sys.argv[1]))
opened = []
try:
    while True:
        opened.append(stores.open("t", len(opened)))
except StoreBroken as error:
    print(error)
    for store in opened:
        store.close()
"""

RUNNING = """
import resource
from streamtable.base.process import running
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
with running(lambda: None):
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
print("raised")
"""

FILES = """
import os, sys
from pathlib import Path
from streamtable.store.folder import FILES_MIN
from streamtable.store.rocksdb import RocksStores
stores = RocksStores(Path(sys.argv[1]))
before = len(os.listdir("/proc/self/fd"))
opened = [stores.open("t", partition) for partition in range(10)]
for store in opened:
    store.write([(b"k", b"v")], b"c")
assert len(os.listdir("/proc/self/fd")) - before <= 10 * FILES_MIN, os.listdir("/proc/self/fd")
print("counted")
"""


def said(program: str, *arguments: object) -> str:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout


@pytest.mark.parametrize("limit", range(60, 72))  # so the limit is met at each file of a store once
def test_a_store_that_finds_no_free_file_names_the_limit_and_what_to_do(tmp_path: Path, limit: int) -> None:
    text = said(OPENING, tmp_path, limit)
    assert f"its limit allows (soft {limit}, hard {limit})" in text
    assert "LimitNOFILE" in text


def test_a_processor_raises_the_soft_limit_to_the_hard_one() -> None:
    assert said(RUNNING) == "raised\n"


def test_a_small_store_has_as_many_files_open_as_the_error_says(tmp_path: Path) -> None:
    assert said(FILES, tmp_path) == "counted\n"
