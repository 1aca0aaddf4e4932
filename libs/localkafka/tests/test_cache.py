from pathlib import Path

import pytest

from localkafka.cache import cached, run
from localkafka.errors import SetupError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "streamtable"


def test_a_folder_is_built_once(cache: Path) -> None:
    built: list[Path] = []

    def build(target: Path) -> None:
        built.append(target)
        (target / "file").write_text("whole")

    assert cached("thing", build) == cached("thing", build) == cache / "thing"
    assert len(built) == 1
    assert (cache / "thing" / "file").read_text() == "whole"


def test_a_build_that_fails_leaves_nothing_behind(cache: Path) -> None:
    def build(target: Path) -> None:
        (target / "file").write_text("half")
        raise SetupError("no network")

    with pytest.raises(SetupError, match="no network"):
        cached("thing", build)
    assert list(cache.iterdir()) == []


def test_of_two_builds_at_once_the_first_to_finish_wins(cache: Path) -> None:
    def quick(target: Path) -> None:
        (target / "file").write_text("quick")

    def slow(target: Path) -> None:
        (target / "file").write_text("slow")
        cached("thing", quick)

    assert (cached("thing", slow) / "file").read_text() == "quick"
    assert [path.name for path in cache.iterdir()] == ["thing"]


def test_the_error_of_a_failed_program_has_its_output() -> None:
    with pytest.raises(SetupError, match=r"failed \(2\):\n/bin/ls: "):
        run(["/bin/ls", "/no/such/folder"])
