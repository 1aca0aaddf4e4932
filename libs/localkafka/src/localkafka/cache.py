"""The cache of downloads: `$XDG_CACHE_HOME/streamtable` (default `~/.cache/streamtable`)."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from localkafka.errors import SetupError

PINS = files("localkafka") / "pins"


def cache_folder() -> Path:
    """Return the cache folder; it may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamtable"


def cached(name: str, build: Callable[[Path], None]) -> Path:
    """Return the folder `name` of the cache; `build` fills it the first time.

    It appears atomically, also when two processes build it at once: the first to finish wins.
    """
    root = cache_folder()
    folder = root / name
    if folder.is_dir():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=root, ignore_cleanup_errors=True) as parent:
        building = Path(parent) / name
        building.mkdir()
        build(building)
        try:
            building.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    return folder


def install_wheels(pin: str | Path, target: Path) -> None:
    """Install the wheels that `pins/<pin>` or a file lists, with their hashes, into a folder, with uv or pip."""
    uv = (
        [sys.executable, "-m", "uv"]
        if find_spec("uv")
        else [found]
        if (found := shutil.which("uv"))
        else None
    )
    installer = [*uv, "pip", "install", "--python", sys.executable] if uv else [*_pip(), "install"]
    requirements = target / "requirements.txt"
    requirements.write_text((pin if isinstance(pin, Path) else PINS / pin).read_text())
    run(
        [
            *installer,
            "--quiet",
            "--no-deps",
            "--require-hashes",
            "--target",
            str(target),
            "-r",
            str(requirements),
        ]
    )


def run(command: list[str], *, env: dict[str, str] | None = None) -> None:
    """Run a program; its output is shown only if it fails."""
    done = subprocess.run(  # noqa: S603 - commands are built here, not taken from outside
        command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        output = (done.stdout + done.stderr)[-2000:].strip()
        raise SetupError(f"{' '.join(command[:5])} ... failed ({done.returncode}):\n{output}")


def _pip() -> list[str]:
    if find_spec("pip") is None:
        raise SetupError(
            "neither uv nor pip is installed, and one is needed to fetch a wheel: install one of them"
        )
    return [sys.executable, "-m", "pip", "--disable-pip-version-check"]
