"""The packages that a process pays for when it imports the library: names, as megabytes depend on the machine and are a property of the report."""

import os
import pty
import subprocess
import sys
from contextlib import closing

import pytest

PROGRAM = """
import sys
sys.path[:] = PATH
import NAME
for line in open("/proc/self/status"):
    if line.startswith("VmRSS"):
        print(line.split()[1])
print(*{module.partition(".")[0] for module in sys.modules})
"""
UNUSED = {"rich", "pygments", "attr", "pydantic", "pydantic_core", "fastavro", "numpy", "rocksdict", "typer"}
"""Of use to terminals, services, schemas, columns and tables, by those who installed them for something else."""


def loaded(name: str, stderr: int) -> tuple[float, set[str]]:
    """Return the resident memory of a process that has imported this, in MB, and its packages."""
    program = PROGRAM.replace("NAME", name).replace("PATH", repr(sys.path))
    ended = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=stderr,
        timeout=60,
        check=True,
        text=True,
    )
    resident, packages = ended.stdout.splitlines()
    return int(resident) / 1024, set(packages.split())


@pytest.mark.parametrize("name", ["streamtable", "streamtable.flow", "microbatch", "streamtable_calls"])
def test_a_process_without_a_terminal_loads_nothing_that_it_does_not_use(
    name: str, request: pytest.FixtureRequest
) -> None:
    resident, packages = loaded(name, subprocess.PIPE)
    request.node.user_properties.append(("resident_mb", resident))
    assert packages & UNUSED == set()
    assert {"structlog", "confluent_kafka"} <= packages


def test_in_a_terminal_structlog_has_the_tracebacks_of_rich() -> None:
    leader, follower = pty.openpty()
    with closing(os.fdopen(leader)), closing(os.fdopen(follower)):
        assert "rich" in loaded("streamtable", follower)[1]
