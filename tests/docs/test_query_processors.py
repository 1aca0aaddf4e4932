"""The page on queries of processors, followed word by word."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.docs.pages import Shell, Step, steps_of

from localkafka.fixtures import OwnBroker
from localkafka.process import reserve_port

PAGE = (Path(__file__).parents[2] / "docs/how-to/query-processors.md").read_text()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STREAMTABLE_")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    with Shell(tmp_path, environment, ()) as shell:
        yield shell


@pytest.mark.broker
@pytest.mark.timeout(240)
def test_two_processors_answer_for_the_keys_of_each_other(shell: Shell, own_broker: OwnBroker) -> None:
    page = PAGE.replace("127.0.0.1:9092", own_broker().bootstrap_servers)
    with ExitStack() as stack:
        for written in ("7070", "7071", "7080", "7081"):
            held = stack.enter_context(reserve_port())
            page = page.replace(written, str(held.getsockname()[1]))
        for step in steps_of(page):
            shell.follow(step)
        shell.follow(Step("kill -INT %1 %2 %3; wait"))
