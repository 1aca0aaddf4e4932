"""The distributions of streamtable-native, as `make release` publishes them: an sdist, and a wheel for each kind of machine.

zig is a C compiler in a wheel, pinned by hash. It brings the C libraries of other machines and of older systems, so one machine
builds all wheels, without containers, and its own compiler and C library do not matter.
"""

import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from localkafka.cache import cached, install_wheels

PACKAGE: Final = "libs/streamtable_native"
PINS: Final = Path(__file__).resolve().parent / "native_wheels.txt"
EXTENSION: Final = "streamtable_native/_native.abi3.so"
TARGETS: Final = {
    "manylinux_2_17_x86_64": "x86_64-linux-gnu.2.17",
    "manylinux_2_17_aarch64": "aarch64-linux-gnu.2.17",
}
"""The platforms in the names of the wheels, and zig's names of them. The Kafka client's own wheels need a newer C library."""

PYTHON: Final = (3, 11)
"""The Python whose headers are compiled with, the oldest that the wheels serve. Newer headers give other bytes."""
HEADERS: Final = Path(sysconfig.get_path("include"))
_SIZES = {"SHORT": 2, "INT": 4, "LONG": 8, "LONG_LONG": 8, "VOID_P": 8, "SIZE_T": 8, "WCHAR_T": 4}


class WheelRefused(Exception):
    """A distribution cannot be built, or a wheel is not what its name says; the text says why."""


def build(root: Path, folder: Path, committed: int) -> None:
    """Build the sdist and the wheels of a commit, with the same bytes each time.

    Args:
        root: The repository. What is not committed is not built.
        folder: Where they are written.
        committed: The time of all files in them, in seconds since 1970.

    Raises:
        WheelRefused: See there, and `check`.
        SetupError: The compiler or auditwheel cannot be fetched.
    """
    if sys.version_info[:2] != PYTHON:
        raise WheelRefused(
            f"Python {PYTHON[0]}.{PYTHON[1]} builds the wheels of streamtable-native: make .venv with it"
        )
    with tempfile.TemporaryDirectory() as place:
        headers = _headers(Path(place) / "include")
        _run_build(folder, _sources(root, Path(place)), "--sdist")
        (sdist,) = folder.glob("streamtable_native-*.tar.gz")
        _repack_sdist(sdist, committed)
        for platform, target in TARGETS.items():
            named = f"--config-setting=--build-option=--plat-name={platform}"
            said = _run_build(folder, sdist, "--wheel", named, settings=_compiler(target, headers))
            (wheel,) = folder.glob(f"streamtable_native-*-{platform}.whl")
            check(wheel, said)
            _repack_wheel(wheel, committed)


def check(wheel: Path, said: str = "") -> None:
    """Refuse a wheel that is not what its name says: by auditwheel, which reads what the extension needs.

    Args:
        wheel: The wheel.
        said: The output of its build, shown if there is no extension.

    Raises:
        WheelRefused: The extension is missing, is for another machine, or needs a newer system than the wheel's name says.
        SetupError: auditwheel cannot be fetched.
    """
    with zipfile.ZipFile(wheel) as archive:
        if EXTENSION not in archive.namelist():
            reason = said[said.find("building '") :][:2000]
            raise WheelRefused(f"{wheel.name} has no extension, since the compiler failed:\n{reason}")
    command = [sys.executable, "-m", "auditwheel", "show", str(wheel)]
    environment = {**os.environ, "PYTHONPATH": str(_tools())}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    found = " ".join((done.stdout + done.stderr).split())
    needs = _platform(found.partition("following platform tag: ")[2])
    named = _platform(wheel.stem)
    if named is None or needs is None or needs[0] != named[0] or needs[1:] > named[1:]:
        raise WheelRefused(f"{wheel.name} does not run where its name says: {found}")


def _platform(text: str) -> tuple[str, int, int] | None:
    """Return the machine and the version of glibc that a text names first."""
    found = re.search(r"manylinux_(\d+)_(\d+)_(x86_64|aarch64)", text)
    return (found[3], int(found[1]), int(found[2])) if found else None


def _tools() -> Path:
    """Return the folder with zig and auditwheel, which are fetched once."""
    digest = hashlib.sha256(PINS.read_bytes()).hexdigest()[:12]
    return cached(f"native-wheels-{digest}", partial(install_wheels, PINS))


def _sources(root: Path, place: Path) -> Path:
    """Make a folder of the committed sources: setuptools would add what earlier builds have left beside them."""
    command = ["git", "archive", "--format=tar", "HEAD", PACKAGE]
    packed = subprocess.run(command, cwd=root, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(place, filter="data")
    return place / PACKAGE


def _headers(place: Path) -> Path:
    """Make a folder of Python's headers for any of the machines: `pyconfig.h` is about the one that Python was compiled for."""
    shutil.copytree(HEADERS, place)
    (place / "pyconfig.h").write_text(
        "".join(f"#define SIZEOF_{name} {size}\n" for name, size in _SIZES.items())
    )
    return place


def _compiler(target: str, headers: Path) -> dict[str, str]:
    """Return the environment in which setuptools compiles for a machine, and takes no settings of this one."""
    compiler = f"{_tools() / 'ziglang' / 'zig'} cc -target {target}"
    return {
        "CC": compiler,
        "LDSHARED": f"{compiler} -shared -s",
        "CFLAGS": f"-O2 -g0 -DNDEBUG -fPIC -I{headers}",
        # Setuptools adds these two to the others.
        "CPPFLAGS": "",
        "LDFLAGS": "",
        "ZIG_GLOBAL_CACHE_DIR": str(_tools().parent / "zig"),
    }


def _run_build(folder: Path, source: Path, *options: str, settings: Mapping[str, str] | None = None) -> str:
    """Build a distribution into a folder. Returns the output of the build."""
    command = [sys.executable, "-m", "uv", "build", "--no-build-isolation", "--python", sys.executable]
    done = subprocess.run(
        [*command, *options, "--out-dir", str(folder), str(source)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **(settings or {})},
    )
    if done.returncode:
        raise WheelRefused(f"{source.name} cannot be built:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout + done.stderr


def _repack_sdist(sdist: Path, committed: int) -> None:
    """Write an sdist again, without owners and times of this machine."""
    with tarfile.open(sdist) as archive:
        files = {each.name: _content(archive, each) for each in archive if each.isfile()}
    with (
        sdist.open("wb") as written,
        gzip.GzipFile(filename="", mode="wb", fileobj=written, mtime=committed) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(content), committed, 0o644
            archive.addfile(entry, io.BytesIO(content))


def _content(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    opened = archive.extractfile(entry)
    assert opened is not None, entry.name
    return opened.read()


def _repack_wheel(wheel: Path, committed: int) -> None:
    """Write a wheel again in the order of its files, without permissions and times of this machine."""
    with zipfile.ZipFile(wheel) as archive:
        files = [(each, archive.read(each)) for each in archive.namelist()]
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files:
            entry = zipfile.ZipInfo(name, time.gmtime(committed)[:6])
            entry.create_system, entry.external_attr = 3, 0o100644 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
