"""The targets of the Makefile that run Spark's jobs."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def make(verb: str, port: int, out: Path) -> subprocess.Popen[str]:
    """Run a target without `setup` and `setup-spark`, which have been run before the tests."""
    return subprocess.Popen(
        [
            "make", "--no-print-directory", "--old-file", "setup", "--old-file", "setup-spark",
            verb, f"PORT={port}", f"OUT={out}",
        ],
        cwd=ROOT, env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
