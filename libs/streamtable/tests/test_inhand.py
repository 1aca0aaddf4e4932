import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streamtable.base.crash_marker import InHandFile, Suspects

SUSPECTS = Suspects("clicks", 3, 1_000, 1_099)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "in-hand" / "i"


def test_nothing_is_left_at_first_nor_by_a_process_that_ended_in_order(path: Path) -> None:
    note = InHandFile(path)
    assert note.left is None
    note.take(SUSPECTS)
    note.release()
    assert InHandFile(path).left is None


def test_what_a_process_had_in_hand_when_it_was_killed_is_left(path: Path) -> None:
    program = (
        "import os, signal, sys, pathlib\n"
        "from streamtable.base.crash_marker import Suspects\n"
        "from streamtable.base.crash_marker import InHandFile\n"
        "note = InHandFile(pathlib.Path(sys.argv[1]))\n"
        "note.take(Suspects('a-much-longer-name', 1, 1, 1_000_000))\n"
        "note.release()\n"
        "note.take(Suspects('clicks', 3, 1_000, 1_099))\n"
        "os.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, path], check=False, env=dict(os.environ))
    assert ended.returncode == -signal.SIGSEGV
    note = InHandFile(path)
    assert note.left == SUSPECTS
    note.release()
    assert InHandFile(path).left is None


@pytest.mark.parametrize(
    "content", [b"", b"clicks 3 10", b"clicks 3 10 x\n", b"\xff\xff\xff\xff", b"clicks 3 10 20 30\n"]
)
def test_a_note_that_is_torn_says_nothing(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    assert InHandFile(path).left is None


def test_where_the_disk_does_not_take_it_nothing_is_noted(tmp_path: Path) -> None:
    (tmp_path / "in-hand").write_text("a file, where the folder should be")
    note = InHandFile(tmp_path / "in-hand" / "i")
    assert note.left is None
    note.take(SUSPECTS)
    note.release()
    assert InHandFile(tmp_path / "in-hand" / "i").left is None


def test_no_file_is_made_before_records_are_handled(path: Path) -> None:
    note = InHandFile(path)
    assert note.left is None
    note.release()
    assert not path.parent.exists()
    note.take(SUSPECTS)
    assert path.exists()
