from pathlib import Path

import pytest

from localkafka.java import OLDEST, find_java, java_major, system_java


def fake_java(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("21", 21), ("1.8.0_292", 1), ("25-ea", 25)])
def test_the_major_version_is_parsed_from_the_output_of_java(
    tmp_path: Path, version: str, major: int
) -> None:
    assert java_major(fake_java(tmp_path, version)) == major


def test_a_program_that_is_not_java_has_version_0(tmp_path: Path) -> None:
    assert java_major(Path("/bin/true")) == 0
    assert java_major(tmp_path / "missing") == 0


def test_java_home_comes_before_the_path_unless_it_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path = fake_java(tmp_path / "path", "17.0.1")
    newer, old = fake_java(tmp_path / "newer", "21.0.1"), fake_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("PATH", str(on_path.parent))
    monkeypatch.setenv("JAVA_HOME", str(newer.parent.parent))
    assert system_java() == newer
    monkeypatch.setenv("JAVA_HOME", str(old.parent.parent))
    assert system_java() == on_path


def test_a_java_that_is_too_old_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(fake_java(tmp_path, "16.0.2").parent))
    assert system_java() is None


@pytest.mark.broker
def test_the_java_that_is_found_is_new_enough() -> None:
    assert java_major(find_java()) >= OLDEST
