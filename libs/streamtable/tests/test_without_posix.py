"""Windows lacks modules, signals and calls of POSIX. Here they are hidden, in a process of their own."""

import subprocess
import sys
from pathlib import Path

import pytest

from streamtable.base.failpoint import COMMIT_STEPS

HIDDEN = """
import asyncio, multiprocessing, os, random, signal, socket, subprocess, sys, tempfile  # made for this system
import fcntl as real
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
for holder, name in [
    (signal, "SIGHUP"), (signal, "SIGSTOP"), (signal, "SIGCONT"), (signal, "SIGKILL"), (os, "pread"), (os, "O_CLOEXEC"),
    (os, "sched_getaffinity"), (os, "getuid"), (socket, "AF_UNIX"),
]:
    if hasattr(holder, name):
        delattr(holder, name)
"""
# Nothing real has this module here. Like Windows' own it locks bytes from where the file is, and refuses with EACCES.
MSVCRT = """
import errno, types
def locking(descriptor, mode, count):
    assert os.lseek(descriptor, 0, os.SEEK_CUR) > 4096, "the text of the file would be locked, and others could not read it"
    try:
        real.lockf(descriptor, real.LOCK_EX | real.LOCK_NB, count, 0, os.SEEK_CUR)
    except BlockingIOError:
        raise PermissionError(errno.EACCES, "Permission denied") from None
sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=2)
"""
IMPORTS = """
import importlib, pkgutil
import streamtable, streamtable_testing, streamtable_supervisor, localkafka
for package in (streamtable, streamtable_testing, streamtable_supervisor, localkafka):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith(("__main__", "jgo_fetch", "fixtures")):
            importlib.import_module(module.name)
"""
TESTER = """
from streamtable import Count, Group, Input, Long, Persist, Stream, String
from streamtable_testing import Tester
CLICKS = Stream("clicks", key=String(), value=String())
COUNTS = Group("counts", Input(CLICKS, aggregate=Count()), Persist(Long()))
with Tester() as tester:
    tester.run(COUNTS)
    tester.emit_many(CLICKS, [("ada", "/"), ("bob", "/"), ("ada", "/a")])
    print(sorted(tester.table(COUNTS).items()))
"""
PROCESS = """
import threading
from streamtable.base.instance_id import instance_id
from streamtable.base.process import running
with running(lambda: print("stopped")):
    signal.raise_signal(signal.SIGTERM)
print(instance_id("g", None).name == socket.gethostname())
"""
STORE = """
from pathlib import Path
from streamtable.store.folder import Folder
first = Folder(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.readline()
first.release(remove=True)
print("released", Path(sys.argv[1]).exists(), flush=True)
"""
FREEZE = """
from pathlib import Path
from localkafka.process import Child
child = Child([sys.executable, "-c", "import time; time.sleep(60)"], Path(sys.argv[1]))
try:
    child.pause()
except Exception as error:
    print(error)
print(child.stop())
"""


def run(program: str, *arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN + program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    return done.stdout


def test_all_modules_can_be_imported() -> None:
    run(IMPORTS)


def test_a_tester_runs_a_group() -> None:
    assert run(TESTER) == "[('ada', 2), ('bob', 1)]\n"


def test_a_process_stops_on_a_signal_and_has_an_instance_id() -> None:
    assert run(PROCESS) == "stopped\nTrue\n"


def test_a_folder_serves_one_process_at_a_time(tmp_path: Path) -> None:
    folder = str(tmp_path / "0")
    with subprocess.Popen(
        [sys.executable, "-c", HIDDEN + MSVCRT + STORE, folder],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as first:  # fmt: skip
        assert first.stdin is not None
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        second = subprocess.run(
            [sys.executable, "-c", HIDDEN + MSVCRT + STORE, folder],
            capture_output=True,
            text=True,
            check=False,
        )
        assert second.returncode == 1
        assert f"StoreInUse: {folder} is held by pid {first.pid} on " in second.stderr
        first.stdin.write("\n")
        first.stdin.flush()
        assert first.stdout.readline() == "released False\n"


@pytest.mark.parametrize("spec", ["produced", "stop@produced"])
def test_a_failpoint_says_that_the_signal_is_missing(spec: str) -> None:
    at = spec.replace("produced", COMMIT_STEPS[0])
    program = f"from streamtable.base.failpoint import failpoint_at\ntry:\n    failpoint_at({at!r})\nexcept ValueError as e:\n    print(e)"
    assert run(program) == f"the failpoint {at!r} needs a signal that this system lacks\n"


def test_a_program_that_cannot_be_frozen_says_so(tmp_path: Path) -> None:
    assert (
        run(FREEZE, str(tmp_path / "log")).splitlines()[0].startswith("a process cannot be frozen on Windows")
    )
