"""The extension's tests once more, over a build that ends the process at the first wrong access to memory: `make native-asan`."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import streamtable_native

HERE = Path(__file__).parent
PACKAGE = Path(streamtable_native.__file__).parent
FLAGS = [
    "-g",
    "-O1",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
]
# The sanitizers come first into the process; its children, such as the broker, go without them.
PROGRAM = """
import os, sys
del os.environ["LD_PRELOAD"]
import pytest
from streamtable_native import _native
assert _native.__file__.startswith(sys.argv[1]), _native.__file__
sys.exit(pytest.main(sys.argv[2:]))
"""


def libraries() -> list[str]:
    """Return the paths of the sanitizers' libraries; none where gcc or they are missing."""
    if shutil.which("gcc") is None:
        return []
    asked = [["gcc", f"-print-file-name={name}"] for name in ("libasan.so", "libubsan.so")]
    found = [
        subprocess.run(each, capture_output=True, text=True, check=True).stdout.strip() for each in asked
    ]
    return found if all(map(os.path.isfile, found)) else []  # gcc repeats the name of what it does not have


def build(folder: Path) -> None:
    """Make a copy of the package with a sanitized extension."""
    package = shutil.copytree(
        PACKAGE, folder / PACKAGE.name, ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    include = f"-I{sysconfig.get_path('include')}"
    source, built = str(package / "_native.c"), str(package / "_native.abi3.so")
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-Wall", "-Werror", *FLAGS, include, source, "-o", built], check=True
    )


@pytest.mark.timeout(600)
@pytest.mark.skipif(not libraries(), reason="there is no gcc with its sanitizers")
def test_the_extension_touches_only_its_own_memory(tmp_path: Path) -> None:
    build(tmp_path)
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(libraries()),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python itself does not free everything at its end
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    # Not captured: what a sanitizer writes as it ends the process would be lost with pytest's own capture.
    options = [
        "-qs",
        *["-p", "no:cacheprovider", "-p", "no:xdist", "-m"],
        "not faults_long",
        *map(str, (HERE / "test_native.py", HERE / "test_fuzz.py")),
    ]
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), *options],
        env=environment, cwd=HERE.parents[2], capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-10_000:]
