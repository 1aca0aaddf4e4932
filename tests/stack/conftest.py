"""Tests with containers run by `make test-stack` only: they build images and take minutes."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.stack.stack import PORTS, ROOT, UP_SECONDS, Stack, free_ports


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked `stack`, unless -m asks for it."""
    if "stack" in config.option.markexpr:
        return
    left_out = [item for item in items if item.get_closest_marker("stack")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def images() -> None:
    """Ours, built from this checkout; quick if nothing has changed."""
    subprocess.run([sys.executable, "-m", "infra.images"], cwd=ROOT, check=True, timeout=1200)


@pytest.fixture(scope="module")
def stack(images: None) -> Iterator[Stack]:
    """The default profile, healthy; at the end nothing of it is left."""
    made = Stack(f"streamtable-test-{os.getpid()}", free_ports(PORTS))
    try:
        made.compose("up", "--detach", "--wait", "--wait-timeout", str(UP_SECONDS))
        yield made
    finally:
        made.compose("--profile", "*", "down", "--volumes", "--remove-orphans", "--timeout", "40")
