"""The tutorial about flows: its program and its tests are run as they stand on the page, and it says what is described."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import steps_of

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs/tutorial/flows.md").read_text()


def test_the_tests_of_the_tutorial_pass_and_the_flow_is_described_as_there(tmp_path: Path) -> None:
    for step in steps_of(PAGE):
        if step.title is not None:
            (tmp_path / step.title).write_text(step.text)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "test_views.py",
    ]
    tests = subprocess.run(
        [*command, f"--rootdir={tmp_path}"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "3 passed" in tests.stdout, tests.stdout + tests.stderr
    described = subprocess.run(
        [sys.executable, "-c", "from views import flow; print(flow.describe(), end='')"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    (shown,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert described.stdout == shown
