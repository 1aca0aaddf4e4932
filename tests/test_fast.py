"""The tests that the fast form leaves out, and those that it shortens."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONFTEST = """
from pathlib import Path
from tests import costs, fast

pytest_plugins = ["tests.costs", "tests.fast"]
costs.BUDGETS = fast.BUDGETS = Path(__file__).with_name("budgets.toml")

def pytest_configure(config):
    config.addinivalue_line("markers", "server: starts a server")
"""
TESTS = """
import pytest
from hypothesis import given, settings, strategies

EXAMPLES = []

def test_quick(): pass
def test_expensive(): pass
@pytest.mark.server
def test_with_a_server(): pass
@settings(max_examples=50)
@given(strategies.integers())
def test_many(number): EXAMPLES.append(number)
def test_how_many(): print("tried", len(EXAMPLES))
"""
BUDGETS = """
[fast]
processor-seconds = {seconds}
[processor-seconds]
[clock-seconds]
[seconds-of-tests]
"test_all.py::test_expensive" = 0.6
"test_all.py::test_many" = 0.6
"""


def run(folder: Path, *arguments: str, seconds: float = 100) -> tuple[int, str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_all.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "budgets.toml").write_text(BUDGETS.format(seconds=seconds))
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-vs", "-p", "no:cacheprovider", "--hold", "60", *arguments],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    return ran.returncode, ran.stdout


def test_it_leaves_out_servers_and_what_took_long_and_tries_fewer_examples(tmp_path: Path) -> None:
    code, said = run(tmp_path, "--fast")
    assert code == 0
    assert "3 passed, 2 deselected" in said
    assert "test_expensive" not in said
    assert "tried 10\n" in said
    code, said = run(tmp_path)
    assert (code, "5 passed" in said, "tried 50\n" in said) == (0, True, True), "all of it without --fast"


@pytest.mark.parametrize(("seconds", "code"), [(0.01, 1), (100, 0)])
def test_it_fails_above_twice_its_processor_seconds(tmp_path: Path, seconds: float, code: int) -> None:
    found, said = run(tmp_path, "--fast", seconds=seconds)
    assert (found, f" of {seconds:.0f} with the workers" in said) == (code, True), said
