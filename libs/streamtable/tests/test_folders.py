"""The permissions of state folders."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamtable.base.crash_marker import InHandFile, Suspects
from streamtable.base.folders import make_private
from streamtable.store.rocksdb import RocksStores


@pytest.fixture(autouse=True)
def open_to_all() -> Iterator[None]:
    """A umask that leaves everything to everybody."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_of_rows_are_their_owners_alone(tmp_path: Path) -> None:
    state = tmp_path / "state" / "streamtable"
    RocksStores(state / "count").open("count-table", 3).close()
    made = [
        tmp_path / "state",
        state,
        state / "count",
        state / "count/count-table",
        state / "count/count-table/3",
    ]
    assert [mode(each) for each in made] == [0o700] * 5


def test_folders_of_notes_are_their_owners_alone(tmp_path: Path) -> None:
    InHandFile(tmp_path / "state/count/in-hand/one").take(Suspects("clicks", 0, 1, 2))
    assert [mode(tmp_path / each) for each in ("state", "state/count", "state/count/in-hand")] == [0o700] * 3


def test_a_folder_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o750)
    make_private(shared / "own")
    make_private(shared / "own")
    assert (mode(shared), mode(shared / "own")) == (0o750, 0o700)


def test_what_is_no_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="exists"):
        make_private(tmp_path / "file")
    with pytest.raises(OSError, match="exists"):
        make_private(tmp_path / "file" / "below")
