"""Pytest fixtures of the services' tests, loaded with `pytest_plugins` in the root conftest.py."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from localkafka.process import reserve_port


@pytest.fixture
def no_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An address at which no broker answers, and settings that name it."""
    with reserve_port() as held:  # until the end, so that no other program listens there
        address = f"127.0.0.1:{held.getsockname()[1]}"
        monkeypatch.setenv("STREAMTABLE_BOOTSTRAP_SERVERS", address)
        monkeypatch.setattr("servicekit.process.runtime._FAIL_FAST_SECONDS", 0.5)
        monkeypatch.setenv("STREAMTABLE_STATE_DIR", str(tmp_path))
        monkeypatch.setenv("STREAMTABLE_HTTP_ADDRESS", "127.0.0.1:0")
        monkeypatch.setenv("STREAMTABLE_GRPC_ADDRESS", "127.0.0.1:0")
        yield address
        structlog.reset_defaults()  # the commands have configured it to write to a stream of the runner's
