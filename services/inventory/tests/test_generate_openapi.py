"""The documents in the repository are current, and released clients can go on."""

import subprocess
import sys
from pathlib import Path

SERVICE = Path(__file__).parents[1]
HISTORY = SERVICE.parents[1] / "proto" / "openapi" / "history"


def test_the_committed_documents_are_current_and_suit_clients_of_released_ones() -> None:
    command = [sys.executable, str(SERVICE / "generate_openapi.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_both_documents_are_released() -> None:
    for name in ("inventory-emitter", "inventory-query"):
        assert list((HISTORY / name).glob("*.json"))
