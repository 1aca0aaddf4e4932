"""The document in the repository is current, and released clients can go on."""

import subprocess
import sys
from pathlib import Path

SERVICE = Path(__file__).parents[1]
HISTORY = SERVICE.parents[1] / "proto" / "openapi" / "history"


def test_the_committed_document_is_current_and_suits_clients_of_released_ones() -> None:
    command = [sys.executable, str(SERVICE / "generate_openapi.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_document_is_released() -> None:
    assert list((HISTORY / "console").glob("*.json"))
