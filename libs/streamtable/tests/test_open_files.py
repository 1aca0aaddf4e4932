"""The limit of open files is raised, and named where it is too low for the partitions."""

import subprocess
import sys
from pathlib import Path

OPENING = """
import os, resource, sys
from pathlib import Path
from streamtable.errors import StoreBroken
from streamtable.store.rocksdb import RocksStores

def fill(folder, limit):
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    stores = RocksStores(folder)
    opened = []
    try:
        while True:
            opened.append(stores.open("t", len(opened)))
    except StoreBroken as error:
        print(error, flush=True)
        for store in opened:
            store.close()

for limit in map(int, sys.argv[2:]):
    if os.fork() == 0:
        fill(Path(sys.argv[1]) / str(limit), limit)
        os._exit(0)
    assert os.wait()[1] == 0, limit
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


def test_a_store_that_finds_no_free_file_names_the_limit_and_what_to_do(tmp_path: Path) -> None:
    limits = range(60, 72)  # so the limit is met at each file of a store once
    errors = said(OPENING, tmp_path, *limits).splitlines()
    assert len(errors) == len(limits)
    for limit, text in zip(limits, errors, strict=True):
        assert f"its limit allows (soft {limit}, hard {limit})" in text
        assert "LimitNOFILE" in text


def test_a_processor_raises_the_soft_limit_to_the_hard_one() -> None:
    assert said(RUNNING) == "raised\n"


def test_a_small_store_has_as_many_files_open_as_the_error_says(tmp_path: Path) -> None:
    assert said(FILES, tmp_path) == "counted\n"
