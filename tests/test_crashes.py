"""The stack traces of crashed workers."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
TESTS = """
import os

def test_a(): pass
def test_b(): os.abort()
"""


def test_the_stack_of_a_crashed_worker_is_in_the_summary(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tests.crashes"]\n')
    (tmp_path / "test_all.py").write_text(TESTS)
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "xdist", "-n", "1"),
            *("--max-worker-restart", "0", "--rootdir", str(tmp_path), "."),
        ],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    summary = ran.stdout.partition("crash of gw0")[2]
    assert ran.returncode == 1, ran.stdout
    assert "Fatal Python error: Aborted" in summary, ran.stdout
    assert 'test_all.py", line 5 in test_b' in summary
