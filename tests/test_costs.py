"""The printed costs of a run, and the costs that fail it."""

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.costs import folder_of, over_budget, processor_seconds

from localkafka.waiting import Deadline

CONFTEST = """
import pytest
from tests import costs

pytest_plugins = ["tests.costs"]
costs.LONG_SECONDS = 0.1
costs.REFERENCE_SECONDS = {reference}
costs.stalled_seconds = lambda: 0.0

def pytest_configure(config):
    config.addinivalue_line("markers", "slow(why): takes long")
"""
SLEEPS = "import time, pytest\n\n{mark}\ndef test_long():\n    time.sleep(0.5)\n"
WORKS = """
import pytest, time

def test_long():
    end = time.process_time() + 0.2
    while time.process_time() < end: pass

@pytest.mark.slow('a clock is tested')
def test_long_with_reason():
    test_long()
"""
ROOT = Path(__file__).parent.parent


def run(folder: Path, test: str, *arguments: str, reference: float = 1e9) -> subprocess.CompletedProcess[str]:
    """Run a test; `reference`: the CPU seconds on the machine of the budgets of what takes a fraction of a second here."""
    (folder / "conftest.py").write_text(CONFTEST.format(reference=reference))
    (folder / "test_long.py").write_text(test)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "xdist", *arguments, "."],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip


def test_a_slower_machine_gets_fewer_workers(tmp_path: Path) -> None:
    for reference, workers in ((1e9, 5), (1e-9, 3)):
        done = run(tmp_path, SLEEPS.format(mark=""), "-v", "-n", "auto", reference=reference)
        assert f"created: {workers}/{workers} workers" in done.stdout, done.stdout


def test_a_long_test_without_a_reason_is_named_and_fails_the_run_if_it_does_not_only_wait(
    tmp_path: Path,
) -> None:
    line = "long, and without @pytest.mark.slow('why'): test_long.py::test_long"
    waits = run(tmp_path, SLEEPS.format(mark=""), "--hold", "60")
    assert (waits.returncode, line in waits.stdout) == (0, True), "a busy machine fails nothing"
    for more in ((), ("-n", "2")):
        named = run(tmp_path, WORKS, "--hold", "60", *more)
        assert named.returncode == 1
        assert line in named.stdout
        assert f"{line}_with_reason" not in named.stdout
    assert "of 60 s of the clock" in named.stdout
    assert run(tmp_path, WORKS).returncode == 0, "nothing is held without --hold"


def test_a_test_may_take_as_many_times_longer_as_the_machine_is_slower(tmp_path: Path) -> None:
    slower = run(tmp_path, WORKS, "--hold", "60", reference=1e-6)
    assert slower.returncode == 0
    assert "long, and without @pytest.mark.slow('why'): test_long.py::test_long" in slower.stdout


def test_a_reason_is_a_must(tmp_path: Path) -> None:
    refused = run(tmp_path, SLEEPS.format(mark="@pytest.mark.slow"))
    assert refused.returncode != 0
    assert "test_long.py::test_long: @pytest.mark.slow needs its reason" in refused.stdout


def test_what_a_process_has_started_counts() -> None:
    before = processor_seconds(os.getpid())
    spin = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\ninput()"
    with subprocess.Popen([sys.executable, "-c", spin], stdin=subprocess.PIPE) as child:
        end = Deadline(60)
        while processor_seconds(os.getpid()) < before + 0.2:
            assert not end.passed()
            time.sleep(0.05)
        child.communicate(b"\n")
    assert processor_seconds(os.getpid()) >= before + 0.2, "also when it has ended"


def test_a_folder_is_named_with_both_numbers_when_it_has_used_more_than_it_may() -> None:
    assert over_budget({"a/tests": 11.0, "b/tests": 9.0, "c": 99.0}, {"a/tests": 10, "b/tests": 10}) == [
        "a/tests: 11 processor seconds, and its budget is 10"
    ]


def test_folders_of_two_names_have_budgets() -> None:
    assert folder_of("libs/streamtable/tests/engine/test_task.py::test_x[a/b]") == "libs/streamtable"
    assert folder_of("tests/test_costs.py::test_y") == "tests"
