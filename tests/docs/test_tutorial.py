"""The tutorial, followed word by word from an empty folder with the wheels that are built here."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.pages import Shell, Step, steps_of

from localkafka.process import reserve_port
from localkafka.waiting import slowdown

ROOT = Path(__file__).resolve().parent.parent.parent
UV = [sys.executable, "-m", "uv"]
LOOKS = (
    "python ask.py", "python look.py", "streamtable table", "streamtable group", "streamtable topics tail"
)  # fmt: skip
PAGES = ("count-clicks", "test-it", "three-processes", "join-tables", "own-writes")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make wheels` makes."""
    folder = tmp_path_factory.mktemp("dist")
    command = ["make", "--no-print-directory", "wheels", f"DIST={folder}"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=100 * slowdown())
    return folder


@pytest.fixture
def shell(wheels: Path, tmp_path: Path) -> Iterator[Shell]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STREAMTABLE_")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    with Shell(tmp_path, environment, LOOKS) as shell:
        yield shell


def told(page: str, wheels: Path, port: int) -> str:
    """The page, with a free port, and with uv in place of pip, which needs not be there: the same packages, from its cache."""
    ours = [path.name.partition("-")[0] for path in wheels.glob("*.whl")]
    fresh = " ".join(
        f"--refresh-package {name}" for name in ours
    )  # the version alone does not tell them apart
    pins = f"--constraint {ROOT / 'requirements.lock'} --no-verify-hashes {fresh}"
    install = f"$ {' '.join(UV)} pip install --quiet --python .venv/bin/python {pins} --find-links {wheels}"
    return (
        page.replace("127.0.0.1:9092", f"127.0.0.1:{port}")
        .replace("localkafka up", f"localkafka up --port {port}")
        .replace("-m venv .venv", "-m venv --without-pip .venv")
        .replace("$ pip install --find-links ~/streamtable/dist", install)
    )


@pytest.mark.broker
@pytest.mark.timeout(480)
@pytest.mark.slow("it builds the wheels, installs them, and follows five pages with their processes")
def test_the_tutorial_can_be_followed_word_by_word_from_an_empty_folder(shell: Shell, wheels: Path) -> None:
    with reserve_port() as held:
        port = held.getsockname()[1]
        shell.follow(Step(f"export STREAMTABLE_BOOTSTRAP_SERVERS=127.0.0.1:{port}"))
        for name in PAGES:
            page = (ROOT / f"docs/tutorial/{name}.md").read_text()
            for step in steps_of(told(page, wheels, port)):
                shell.follow(step)
