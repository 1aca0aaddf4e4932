"""Programs of the benchmark are forked in its tests: to import their modules takes a second of CPU time for each start."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.faults.forked import ForkedChild

from localkafka.process import Child

THREADED = ("bench.programs.reach_stage", "bench.programs.spark_", "bench.programs.lake_")
"""The first letters of modules whose imports start a thread (linear algebra of numpy, Spark): a fork would not copy it."""


@pytest.fixture(autouse=True)
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork programs that are modules from processes that have imported these; start others as the benchmark does."""

    def start(command: Sequence[str], log: Path, *, env: Mapping[str, str]) -> ForkedChild | Child:
        match command:
            case [sys.executable, "-m", module] if not module.startswith(THREADED):
                return ForkedChild(module, (), log, env)
        return Child(command, log, env=env)

    monkeypatch.setattr("bench.measure.Child", start)
