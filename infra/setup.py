"""`make setup`: installs all that the demo needs on a machine with Python and access to package registries.

With `--spark` (`make setup SPARK=1`) also PySpark and its connectors, 460 MB, which the jobs in spark/ and their tests need.
Standard library only. When nothing has changed since the last time it does nothing.
"""

import ast
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

OLDEST = (3, 11)
ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "setup-stamp"
SPARK_STAMP = VENV / "setup-stamp-spark"
LOCK = ROOT / "requirements.lock"
UV_PIN = ROOT / "infra" / "uv.txt"
SPARK_LOCK = ROOT / "infra" / "docker" / "locks" / "spark.txt"
SPARK_JARS = ROOT / "spark" / "src" / "streamtable_spark" / "jars.sha256"
NATIVE = ROOT / "libs" / "streamtable_native" / "src" / "streamtable_native"
LOCALKAFKA = ROOT / "libs" / "localkafka" / "src" / "localkafka"
# pip's settings that uv has under other names; it reads neither pip's files nor its variables.
PIP_TO_UV = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX"}
UV_INDEX_VARIABLES = {"UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL"}


def main() -> None:
    """Run the missing steps, with one line of progress for each."""
    if sys.version_info < OLDEST:
        stop(
            f"Python {OLDEST[0]}.{OLDEST[1]} or newer is needed, this is {sys.version.split()[0]}: make PYTHON=python3.12 setup"
        )
    spark = "--spark" in sys.argv[1:]
    started = time.monotonic()
    pins, sources = sorted((LOCALKAFKA / "pins").iterdir()), sorted(ROOT.glob("libs/*/src/*/*.c"))
    base = fingerprint([LOCK, UV_PIN, Path(__file__), *pyprojects(), *pins, *sources])
    more = fingerprint([SPARK_LOCK, SPARK_JARS], base)
    changed = False
    if not up_to_date(STAMP, base):
        set_up(base)
        changed = True
    if spark and not up_to_date(SPARK_STAMP, more):
        set_up_spark(more)
        changed = True
    if changed:
        print(f"[setup] ready after {time.monotonic() - started:.0f} s", flush=True)


def set_up(digest: str) -> None:
    """Install what demo, services and tests without Spark need."""
    STAMP.unlink(missing_ok=True)
    make_venv()
    step(
        "Installing uv",
        [str(PYTHON), "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(UV_PIN)],
    )
    install("Installing the packages of requirements.lock", "-r", str(LOCK))
    editable = [argument for member in members() for argument in ("--editable", str(member))]
    for built in NATIVE.glob("*.so"):
        built.unlink()  # of earlier sources: it would stay where the compiler fails
    install("Installing the workspace", "--no-index", "--no-deps", "--no-build-isolation", *editable)
    if not list(NATIVE.glob("*.so")):
        print(f"[setup] {why_not_native()}: Python does the work of the native loops", flush=True)
    places = step("Looking for Java and Kafka's jars", [str(PYTHON), "-m", "localkafka.jars"])
    places += step("Keeping Kafka's classes for a quick start", [str(PYTHON), "-m", "localkafka.classes"])
    STAMP.write_text("\n".join([digest, *places.split("\n")]))


def why_not_native() -> str:
    """Return why the extension of streamtable-native was not built."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"no C compiler ({compiler})"
    return f"{compiler} fails (Debian, Ubuntu: apt-get install libc6-dev python3-dev)"


def set_up_spark(digest: str) -> None:
    """Install PySpark, and fetch the jars of its connectors."""
    SPARK_STAMP.unlink(missing_ok=True)
    install("Installing PySpark", "-r", str(SPARK_LOCK))
    places = step(
        "Looking for the jars of Spark's connectors", [str(PYTHON), str(ROOT / "infra" / "spark_jars.py")]
    )
    SPARK_STAMP.write_text("\n".join([digest, *places.split("\n")]))


def install(title: str, *arguments: str) -> None:
    """Install packages with uv: from the index only with their hashes."""
    pinned = [] if "--no-index" in arguments else ["--require-hashes"]
    uv = [str(PYTHON), "-m", "uv", "pip", "install", "--quiet", "--python", str(PYTHON)]
    step(title, [*uv, *pinned, *arguments], uv_environment())


def members() -> list[Path]:
    """Return the folders of the workspace's packages."""
    return sorted(
        path.parent
        for pattern in ("libs/*", "services/*", "spark")
        for path in ROOT.glob(f"{pattern}/pyproject.toml")
    )


def pyprojects() -> list[Path]:
    """Return the pyproject.toml files of the workspace's packages."""
    return [member / "pyproject.toml" for member in members()]


def fingerprint(files: Sequence[Path], more: str = "") -> str:
    """Return a digest of the files that decide what is installed."""
    digest = hashlib.sha256(f"{ROOT} {sys.version} {more}".encode())
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def up_to_date(stamp: Path, digest: str) -> bool:
    """Return whether the last set-up was this one, and its files outside of .venv still exist."""
    if not stamp.exists():
        return False
    known, *places = stamp.read_text().split("\n")
    return known == digest and all(Path(place).exists() for place in places if place)


def make_venv() -> None:
    """Create `.venv`, or recreate one that does not work."""
    works = (
        PYTHON.exists()
        and not subprocess.run(
            [PYTHON, "-m", "pip", "--version"], capture_output=True, check=False
        ).returncode
    )
    if works:
        return
    if find_spec("venv") is None or find_spec("ensurepip") is None:
        stop(
            "this Python cannot make virtual environments: install its venv module "
            "(Debian and Ubuntu: apt-get install python3-venv), or name another: make PYTHON=... setup"
        )
    step("Making .venv", [sys.executable, "-m", "venv", "--clear", str(VENV)])


def uv_environment() -> dict[str, str]:
    """Return the environment for uv, with pip's package index unless uv has its own setting."""
    settings = subprocess.run(
        [PYTHON, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    handed_on = {}
    for line in settings.stdout.splitlines():
        name, _, value = line.partition("=")
        uv_name = PIP_TO_UV.get(name.rpartition(".")[2])
        if uv_name and value:
            handed_on[uv_name] = ast.literal_eval(value).replace("\n", " ")
    return os.environ | (handed_on if UV_INDEX_VARIABLES.isdisjoint(os.environ) else {})


def step(title: str, command: Sequence[str], env: dict[str, str] | None = None) -> str:
    """Run one step; its standard error is shown as it is written. Returns its output."""
    print(f"[setup] {title}", flush=True)
    done = subprocess.run(
        command, env=env, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        print(done.stdout, end="")
        stop(f"'{title}' failed; `make doctor` says what this machine lacks")
    return done.stdout


def stop(message: str) -> NoReturn:
    """Exit with this message."""
    sys.exit(f"[setup] {message}")


if __name__ == "__main__":
    main()
