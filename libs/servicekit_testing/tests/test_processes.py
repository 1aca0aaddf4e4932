"""Requests to a service's process while it starts."""

from pathlib import Path

import pytest

from servicekit_testing.processes import Process

PROGRAM = """
import sys
if __name__ == "__main__":
    print("starting", flush=True)
    if "refuses" in sys.argv:
        raise SystemExit("there is no topic")
    print("listening on http://127.0.0.1:81", flush=True)
    print("listening on grpc://127.0.0.1:82", flush=True)
"""


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "listener.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def test_its_addresses_are_given_one_after_the_other() -> None:
    process = Process("listener", [], {})
    assert [process.address(), process.address()] == ["127.0.0.1:81", "127.0.0.1:82"]
    assert process.ended() == 0


def test_one_that_ends_before_it_listens_fails_at_once_with_what_it_wrote() -> None:
    process = Process("listener", ["refuses"], {})
    with pytest.raises(
        AssertionError, match="the command ended before it listened: starting\nthere is no topic"
    ):
        process.address()
    assert process.ended() == 1
