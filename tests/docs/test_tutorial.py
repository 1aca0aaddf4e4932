"""The README's programs and the tutorial, followed word by word from an empty folder with the wheels that are built here."""

import os
import subprocess
import sys
import time
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
    """The wheels that `make wheels` builds."""
    folder = tmp_path_factory.mktemp("dist")
    command = ["make", "--no-print-directory", "wheels", f"DIST={folder}"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=100 * slowdown())
    return folder


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STREAMTABLE_")}
    environment["XDG_DATA_HOME"] = str(tmp_path / "data")  # of `streamtable dev`
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    with Shell(tmp_path, environment, LOOKS) as shell:
        yield shell


def install(wheels: Path) -> str:
    """uv in place of pip, which needs not be there: it installs the same packages, from its cache."""
    ours = [path.name.partition("-")[0] for path in wheels.glob("*.whl")]
    # The version alone does not tell two builds apart.
    fresh = " ".join(f"--refresh-package {name}" for name in ours)
    pins = f"--constraint {ROOT / 'requirements.lock'} --no-verify-hashes {fresh}"
    return f"$ {' '.join(UV)} pip install --quiet --python .venv/bin/python {pins} --find-links {wheels}"


def with_port(page: str, wheels: Path, port: int) -> str:
    """The page, with a free port, and with uv in place of pip."""
    return (
        page.replace("127.0.0.1:9092", f"127.0.0.1:{port}")
        .replace("dev up", f"dev up --port {port}")
        .replace("-m venv .venv", "-m venv --without-pip .venv")
        .replace("$ pip install --find-links ~/streamtable/dist", install(wheels))
    )


@pytest.mark.broker
@pytest.mark.timeout(240)
def test_the_readme_leads_from_an_empty_folder_to_its_answer_within_a_minute(
    shell: Shell, wheels: Path
) -> None:
    with reserve_port() as held:
        port = held.getsockname()[1]
        page = (ROOT / "README.md").read_text().replace("127.0.0.1:9092", f"127.0.0.1:{port}")
        page = page.replace("dev up\n", f"dev up --port {port}\n")
        page = page.replace("$ pip install", install(wheels))
        install_first, kafka, *rest = list(steps_of(page))
        began = time.monotonic()
        shell.follow(Step("unset PYTHONPATH; python3 -m venv --without-pip .venv && . .venv/bin/activate"))
        shell.follow(install_first)
        try:
            shell.follow(kafka)
            for step in [*(each for each in rest if each.title), *(each for each in rest if not each.title)]:
                shell.follow(step)
            took = time.monotonic() - began
            shell.follow(Step("kill -INT %1; wait"))
        finally:
            shell.follow(Step("streamtable dev down --wipe"))
    assert took < 60 * slowdown(), took
    shell.follow(Step(f"{install(wheels)[2:]} 'streamtable[testing]' pytest"))
    shell.follow(Step("python -m pytest -q test_clicks.py", expected="…1 passed…\n"))


@pytest.mark.server  # it builds the wheels and installs them
def test_the_programs_of_the_tutorial_pass_the_tests_that_it_shows(shell: Shell) -> None:
    tested = 0
    for name in PAGES:
        for step in steps_of((ROOT / f"docs/tutorial/{name}.md").read_text()):
            if step.title or step.text.startswith(("mkdir", "pytest")):
                shell.follow(step)
                tested += step.text.startswith("pytest")
    assert tested == 4


@pytest.mark.broker
@pytest.mark.timeout(480)
@pytest.mark.faults_long("it builds the wheels, installs them, and follows five pages with their processes")
def test_the_tutorial_can_be_followed_word_by_word_from_an_empty_folder(shell: Shell, wheels: Path) -> None:
    with reserve_port() as held:
        port = held.getsockname()[1]
        shell.follow(Step("unset PYTHONPATH"))  # the installed packages count
        shell.follow(Step(f"export STREAMTABLE_BOOTSTRAP_SERVERS=127.0.0.1:{port}"))
        for name in PAGES:
            page = (ROOT / f"docs/tutorial/{name}.md").read_text()
            for step in steps_of(with_port(page, wheels, port)):
                shell.follow(step)
