"""A limit of address space that is too low ends a service with a reason, before a library aborts without one."""

import subprocess
import sys
from pathlib import Path

import pytest

from streamtable.base.process import ADDRESS_SPACE_MIN

SERVICE = """
import sys
from servicekit.process.runtime import Program
from servicekit.process.service_settings import ServiceSettings
class ShopSettings(ServiceSettings):
    group: str = "shop"
sys.exit(Program("shop", ShopSettings, "orders").run(lambda runtime: print("runs") or 0))
"""


def started(kibibytes: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    command = ["sh", "-c", f'ulimit -v {kibibytes}; exec "$0" -c "$1"', sys.executable, SERVICE]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("kibibytes", [300_000, 600_000, ADDRESS_SPACE_MIN // 1024 - 1])
def test_too_little_address_space_is_an_error_with_the_needed_limit(kibibytes: int, tmp_path: Path) -> None:
    done = started(str(kibibytes), tmp_path)
    assert done.returncode == 2
    assert f"the limit of address space (RLIMIT_AS, `ulimit -v`) is {kibibytes // 1024} MiB" in done.stderr
    assert "2048 MiB are needed" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "runs" not in done.stdout


@pytest.mark.parametrize("kibibytes", [str(ADDRESS_SPACE_MIN // 1024), "unlimited"])
def test_a_service_runs_with_enough_address_space(kibibytes: str, tmp_path: Path) -> None:
    done = started(kibibytes, tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, "runs"), done.stderr
