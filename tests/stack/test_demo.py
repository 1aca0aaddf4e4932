"""The demo says what to install before it starts anything."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from infra import demo_capture

from localstores import postgres

ROOT = Path(__file__).resolve().parents[2]


def test_without_postgresql_the_demo_of_captured_products_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(postgres, "_DEBIAN", tmp_path)
    missing = demo_capture.what_to_install()
    assert missing is not None
    assert "apt-get install postgresql" in missing


def test_the_demo_without_postgresql_ends_with_an_error_and_leaves_nothing_behind(tmp_path: Path) -> None:
    program = (
        "import sys, infra.demo as demo; demo.what_to_install = lambda: 'CAPTURE=1 needs PostgreSQL'; "
        "sys.argv = ['demo', '--capture']; sys.exit(demo.main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "CAPTURE=1 needs PostgreSQL" in done.stdout
    assert list(tmp_path.iterdir()) == []
