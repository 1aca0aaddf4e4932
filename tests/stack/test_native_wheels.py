"""The wheels of the native loops: their bytes, what they need of a machine, and that they run on one without a compiler."""

import hashlib
import os
import platform
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from infra import native_wheels, release
from infra.native_wheels import EXTENSION, TARGETS, WheelRefused
from tests.stack.test_release import NEEDED, ROOT, interpreter, repository

from localkafka.broker import Broker
from localkafka.fixtures import Topics

pytestmark = [
    pytest.mark.server,  # it fetches a compiler, once on a machine, and builds wheels
    pytest.mark.timeout(400),
]
COMMITTED = 1_796_083_200
UV = [sys.executable, "-m", "uv"]
MACHINES = {"x86_64": 62, "aarch64": 183}
"""The numbers of machines in the heads of their programs."""
OURS = (*NEEDED, "streamtable_native")
# A flow of records to a table and back, by both loops: a view of the same process sees what was committed.
PROGRAM = """
import os, signal, sys, threading
from streamtable import App, Count, Group, Input, Long, Persist, Stream, String

servers, name = sys.argv[1:]
CLICKS = Stream(f"{name}-clicks", key=String(), value=String())
COUNTS = Group(f"{name}-counts", Input(CLICKS, aggregate=Count()), Persist(Long()))
app = App.from_env({**os.environ, "STREAMTABLE_BOOTSTRAP_SERVERS": servers, "STREAMTABLE_STATE_DIR": "state"})
app.create_topics(COUNTS)
with app.emitter(CLICKS) as emitter:
    for user in ("ada", "bob", "ada", "last"):
        emitter.emit_now(user, "/")

def look():
    with app.view(COUNTS.table) as counts:
        counts.wait_ready()
        for user, count in (("ada", 2), ("bob", 1), ("last", 1)):
            while counts.get(user) != count:
                ended.wait(0.05)
        print(sorted(counts.range()))
    os.kill(os.getpid(), signal.SIGINT)

ended = threading.Event()
threading.Thread(target=look, daemon=True).start()
app.run(COUNTS)
"""


def build(folder: Path) -> list[Path]:
    """Build the distributions of the native loops, from a commit of their own."""
    folder.mkdir(parents=True)
    root = repository(folder, ("streamtable_native",))
    native_wheels.build(root, folder / "dist", COMMITTED)
    return sorted((folder / "dist").glob("streamtable_native*"))


def sums(paths: list[Path]) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return build(tmp_path_factory.mktemp("native") / "one")


def wheel_of(built: list[Path], name: str) -> Path:
    (found,) = (path for path in built if path.stem.endswith(name))
    return found


def test_the_same_commit_gives_the_same_bytes_in_another_folder_with_other_settings_and_headers(
    built: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CFLAGS", "CPPFLAGS", "LDFLAGS"):
        monkeypatch.setenv(name, "-g")  # as someone may have them
    others = Path("/usr/include/python3.11")  # Debian's, for one machine only
    if (others / "Python.h").exists():
        monkeypatch.setattr(native_wheels, "HEADERS", others)
    before = os.umask(0o027)
    try:
        again = build(tmp_path / "another" / "place")
    finally:
        os.umask(before)
    assert sums(built) == sums(again)
    assert [path.name for path in built] == [
        "streamtable_native-0.1.0-cp311-abi3-manylinux_2_17_aarch64.whl",
        "streamtable_native-0.1.0-cp311-abi3-manylinux_2_17_x86_64.whl",
        "streamtable_native-0.1.0.tar.gz",
    ]
    release.check(built)


@pytest.mark.parametrize("name", TARGETS)
def test_a_wheel_has_the_extension_of_its_machine_and_nothing_of_the_sources(
    built: list[Path], name: str
) -> None:
    wheel = wheel_of(built, name)
    native_wheels.check(wheel)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        extension = archive.read(EXTENSION)
    (machine,) = struct.unpack_from("<H", extension, 18)
    assert (extension[:4], machine) == (b"\x7fELF", MACHINES[name.partition("2_17_")[2]])
    assert not [name for name in names if name.endswith((".c", ".o"))]
    assert b"libdl.so.2\0" in extension
    assert b"libpython" not in extension


def test_the_wheel_of_this_machine_is_loaded_by_this_interpreter(built: list[Path], tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel_of(built, platform.machine())) as archive:
        archive.extractall(tmp_path)
    program = "import streamtable_native as n; from streamtable_native import _native; n.load(); print(_native.__file__)"
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.strip() == str(tmp_path / EXTENSION)


def test_the_sdist_is_built_without_the_extension_where_no_compiler_is_and_that_is_no_release(
    built: list[Path], tmp_path: Path
) -> None:
    command = [*UV, "build", "--quiet", "--wheel", "--no-build-isolation", "--python", sys.executable]
    subprocess.run(
        [*command, "--out-dir", str(tmp_path), str(built[-1])],
        env={**os.environ, "PATH": str(tmp_path), "CC": "cc"}, check=True,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert "streamtable_native/native.py" in names
    assert EXTENSION not in names
    with pytest.raises(WheelRefused, match="has no extension"):
        native_wheels.check(wheel)


def test_a_wheel_whose_extension_could_not_be_compiled_is_refused_with_the_words_of_the_compiler(
    tmp_path: Path,
) -> None:
    root = tmp_path / "repository"
    root.mkdir()
    source = Path("libs/streamtable_native/src/streamtable_native/_native.c")
    repository(root, ("streamtable_native",))
    (root / source).write_text("this is not C")
    for arguments in (
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "Break"],
    ):
        subprocess.run(["git", *arguments], cwd=root, check=True)
    with pytest.raises(WheelRefused, match=r"(?s)x86_64\.whl has no extension.*unknown type name 'this'"):
        native_wheels.build(root, tmp_path / "dist", COMMITTED)


def test_a_wheel_with_the_name_of_another_machine_is_refused(built: list[Path], tmp_path: Path) -> None:
    wheel = wheel_of(built, "x86_64")
    renamed = tmp_path / wheel.name.replace("x86_64", "aarch64")
    renamed.write_bytes(wheel.read_bytes())
    with pytest.raises(WheelRefused, match="does not run where its name says"):
        native_wheels.check(renamed)


def test_a_wheel_that_needs_a_newer_system_than_its_name_says_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_wheels, "TARGETS", {"manylinux_2_17_x86_64": "x86_64-linux-gnu.2.36"})
    with pytest.raises(WheelRefused, match=r"does not run where its name says.*manylinux_2_3\d_x86_64"):
        build(tmp_path / "new")


def environment(folder: Path, python: str) -> Path:
    """Make a virtual environment with what the library needs from others. Returns its interpreter."""
    subprocess.run([*UV, "venv", "--quiet", "--python", python, str(folder)], check=True)
    inside = folder / "bin" / "python"
    locked = [str(ROOT / "infra/docker/locks" / name) for name in ("cli.txt", "tools.txt")]
    command = [*UV, "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--python", str(inside)]
    subprocess.run([*command, "-r", locked[0], "-r", locked[1]], check=True, timeout=200)
    return inside


def install(python: Path, wheels: Path) -> None:
    """Install the library by its name, without a compiler: the path has only the environment."""
    command = [
        *UV,
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-build-isolation",
        "--python",
        str(python),
    ]
    fresh = [option for name in OURS for option in ("--refresh-package", name)]
    path = {name: value for name, value in os.environ.items() if name != "CC"} | {"PATH": str(python.parent)}
    subprocess.run(
        [*command, *fresh, "--find-links", str(wheels), "streamtable"], check=True, timeout=200, env=path
    )


def run(python: Path, native: str, broker: Broker, name: str) -> subprocess.CompletedProcess[str]:
    """Run the program with a choice of STREAMTABLE_NATIVE."""
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [str(python), "-c", PROGRAM, broker.bootstrap_servers, name],
        env={**clean, "PATH": str(python.parent), "STREAMTABLE_NATIVE": native},
        cwd=python.parent, check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


COUNTED = "[('ada', 2), ('bob', 1), ('last', 1)]\n"


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `make release` makes of the library and what it needs of ours."""
    root = repository(tmp_path_factory.mktemp("released"), OURS)
    release.build(root, root / "dist")
    return root / "dist"


@pytest.mark.broker
@pytest.mark.faults_long("it installs everything that the library needs, for each interpreter")
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_an_installation_without_a_compiler_counts_in_c_where_there_is_a_wheel(
    version: str, released: Path, tmp_path: Path, broker: Broker, topics: Topics
) -> None:
    if (found := interpreter(version)) is None:
        pytest.skip(f"this machine has no Python {version}")
    python = environment(tmp_path / "environment", found)
    install(python, released)
    done = run(python, "required", broker, topics.name("c"))
    assert (done.returncode, done.stdout) == (0, COUNTED), done.stderr
    assert "inner loops run in C" in done.stderr


@pytest.mark.broker
@pytest.mark.faults_long("it installs everything that the library needs")
def test_an_installation_without_a_compiler_counts_in_python_where_there_is_no_wheel_and_says_so(
    released: Path, tmp_path: Path, broker: Broker, topics: Topics
) -> None:
    links = tmp_path / "links"
    links.mkdir()
    for path in released.iterdir():
        if not (path.name.startswith("streamtable_native") and path.suffix == ".whl"):
            (links / path.name).symlink_to(path)
    python = environment(tmp_path / "environment", sys.executable)
    install(python, links)
    for choice, code, counted, words in (
        ("auto", 0, COUNTED, "was installed without an extension for this machine"),
        ("required", 1, "", "STREAMTABLE_NATIVE=required: streamtable-native was installed without"),
    ):
        done = run(python, choice, broker, topics.name(choice))
        assert (done.returncode, done.stdout) == (code, counted), done.stderr
        assert words in done.stderr
    subprocess.run(
        [*UV, "pip", "uninstall", "--quiet", "--python", str(python), "streamtable-native"], check=True
    )
    done = run(python, "auto", broker, topics.name("none"))
    assert (done.returncode, done.stdout) == (0, COUNTED), done.stderr
    assert "No module named 'streamtable_native': pip install 'streamtable[native]'" in done.stderr
