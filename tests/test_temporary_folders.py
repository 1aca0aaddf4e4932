"""Several pytest sessions at a time on one machine: what the settings in pyproject.toml say about their folders."""

import os
import subprocess
import sys
from pathlib import Path

SETTINGS = Path(__file__).parent.parent / "pyproject.toml"
SHORT = """
def test_short(tmp_path):
    (tmp_path / "file").touch()
"""
LONG = """
import subprocess, sys

def test_long(tmp_path):
    subprocess.run([*sys.orig_argv[:-1], sys.orig_argv[-1].replace("long", "short")], check=True)
    assert tmp_path.is_dir()
"""


def test_a_session_that_ends_leaves_the_folders_of_another_alone_and_none_behind(tmp_path: Path) -> None:
    for name, text in (("short", SHORT), ("long", LONG)):
        (tmp_path / f"test_{name}.py").write_text(text)
    plugins = ["-p", "pytest_timeout", "--noconftest"]
    command = [sys.executable, "-m", "pytest", *plugins, "-c", str(SETTINGS), str(tmp_path / "test_long.py")]
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    environment = {"PYTEST_DEBUG_TEMPROOT": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ended = subprocess.run(
        command, env={**inherited, **environment}, stdout=subprocess.PIPE, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout
    assert list(tmp_path.glob("pytest-of-*/*")) == []
