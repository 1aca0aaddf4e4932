"""What `make setup` says and leaves where the native loops cannot be compiled."""

from pathlib import Path

import pytest
from infra import setup


def test_a_set_up_without_the_extension_says_whether_there_is_no_compiler_or_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "own-cc -m64")
    assert setup.why_not_native() == "no C compiler (own-cc)"
    (tmp_path / "own-cc").touch(mode=0o755)
    assert setup.why_not_native().startswith("own-cc fails (Debian, Ubuntu: apt-get install")


def test_a_set_up_uses_no_extension_of_earlier_sources_where_the_compiler_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    earlier = tmp_path / "_native.abi3.so"
    earlier.touch()
    monkeypatch.setattr(setup, "NATIVE", tmp_path)
    monkeypatch.setattr(setup, "STAMP", tmp_path / "stamp")
    monkeypatch.setattr(setup, "make_venv", lambda: None)
    monkeypatch.setattr(setup, "install", lambda *_: None)
    monkeypatch.setattr(setup, "step", lambda *_: "")
    setup.set_up("digest")
    assert not earlier.exists()
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith(": Python does the work of the native loops")
