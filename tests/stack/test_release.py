"""What is published: a commit that is not ready is refused, and one that is gives the same bytes wherever it is built."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from email.parser import Parser
from pathlib import Path

import pytest
from infra import release

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("exactavro", "streamtable")
NEEDED = ("exactavro", "exactjson", "streamtable_supervisor", "streamtable")
Change = Callable[[Path], object]


def git(root: Path, *arguments: str) -> None:
    who = {f"GIT_{role}_{what}": "a@b.c" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    when = {"GIT_AUTHOR_DATE": "2026-12-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-12-01T00:00:00Z"}
    subprocess.run(
        ["git", *arguments], cwd=root, check=True, capture_output=True, env={**os.environ, **who, **when}
    )


def repository(root: Path, packages: tuple[str, ...] = PACKAGES) -> Path:
    """A repository with some of the packages, ready to be released as 0.1.0."""
    for name in packages:
        ignored = shutil.ignore_patterns("__pycache__", "tests", "*.so", "*.egg-info", "build")
        shutil.copytree(ROOT / "libs" / name, root / "libs" / name, ignore=ignored)
    (root / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-12-01\n\n- All.\n"
    )
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "Release 0.1.0")
    return root


def write_a_file(root: Path) -> None:
    (root / "more.txt").write_text("more")


def tag(root: Path) -> None:
    git(root, "tag", "v0.1.0")


def forget_the_changelog(root: Path) -> None:
    (root / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n")
    git(root, "commit", "--quiet", "--all", "--message", "Forget")


def test_a_commit_that_is_ready_has_no_problems(tmp_path: Path) -> None:
    assert list(release.problems(repository(tmp_path), "0.1.0")) == []


@pytest.mark.parametrize(
    ("change", "version", "problem"),
    [
        (write_a_file, "0.1.0", "the tree has changes that are not committed: more.txt"),
        (tag, "0.1.0", "the tag v0.1.0 exists: a version is released once"),
        (forget_the_changelog, "0.1.0", "CHANGELOG.md has no heading '## [0.1.0] - YYYY-MM-DD'"),
        (lambda _: None, "one", "'one' is no version: give one such as 0.1.0"),
    ],
)
def test_a_commit_that_is_not_ready_is_refused_with_the_reason(
    tmp_path: Path, change: Change, version: str, problem: str
) -> None:
    change(repository(tmp_path, ("exactavro",)))
    (found,) = release.problems(tmp_path, version)
    assert found.startswith(problem)


def test_each_package_of_another_version_is_named(tmp_path: Path) -> None:
    found = list(release.problems(repository(tmp_path), "0.2.0"))
    assert "libs/exactavro/pyproject.toml has version '0.1.0', not '0.2.0'" in found
    assert "libs/streamtable/pyproject.toml has version '0.1.0', not '0.2.0'" in found


def test_a_package_that_asks_for_another_version_of_one_of_ours_is_named(tmp_path: Path) -> None:
    root = repository(tmp_path, ("streamtable",))
    path = root / "libs/streamtable/pyproject.toml"
    path.write_text(path.read_text().replace('"streamtable-native==0.1.0', '"streamtable-native==0.0.9'))
    git(root, "commit", "--quiet", "--all", "--message", "Forget")
    assert list(release.problems(root, "0.1.0")) == [
        "libs/streamtable/pyproject.toml asks for 'streamtable-native==0.0.9', not 'streamtable-native==0.1.0'"
    ]


def test_a_commit_gives_the_same_bytes_in_another_folder_and_passes_the_checks_of_an_index(
    tmp_path: Path,
) -> None:
    sums = []
    for place in ("one", "another/place"):
        (tmp_path / place).mkdir(parents=True)
        root = repository(tmp_path / place)
        built = release.build(root, root / "dist")
        sums.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in built})
    assert sums[0] == sums[1]
    assert len(sums[0]) == 2 * len(PACKAGES)
    release.check(built)
    wheel = next(path for path in built if path.name.startswith("streamtable-") and path.suffix == ".whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        fields = Parser().parsestr(archive.read(metadata).decode())
    assert "streamtable/py.typed" in names
    assert fields["Requires-Python"] == ">=3.11"
    pythons = {each.rpartition(" ")[2] for each in fields.get_all("Classifier") or () if ":: 3." in each}
    assert pythons == {"3.11", "3.12", "3.13", "3.14"}


def test_the_lists_beside_a_release_name_each_package_with_its_checksum(tmp_path: Path) -> None:
    names = [release.project(path)["name"].replace("-", "_") for path in release.packages(ROOT)]
    built = [tmp_path / f"{name}-0.1.0-py3-none-any.whl" for name in names if name != "streamtable_native"]
    kinds = ["cp311-abi3-manylinux_2_17_aarch64", "cp311-abi3-manylinux_2_17_x86_64"]
    built += [tmp_path / f"streamtable_native-0.1.0-{kind}.whl" for kind in kinds]
    for path in built:
        path.write_text(path.name)
    release.write_lists(tmp_path, "0.1.0", built)
    lines = (tmp_path / "SHA256SUMS").read_text().splitlines()
    done = subprocess.run(
        ["sha256sum", "--check", "SHA256SUMS"], cwd=tmp_path, check=False, capture_output=True
    )
    assert (len(lines), done.returncode) == (len(built), 0)
    components = json.loads((tmp_path / "sbom.cdx.json").read_text())["components"]
    named = [each["content"] for component in components for each in component["hashes"]]
    assert sorted(named) == sorted(line.split("  ")[0] for line in lines)


def test_all_packages_have_the_same_version_and_declare_the_same_pythons() -> None:
    found = [tomllib.loads(path.read_text())["project"] for path in release.packages(ROOT)]
    assert len({each["version"] for each in found}) == 1
    assert len({tuple(each["classifiers"]) for each in found}) == 1


def test_the_changelog_tells_of_the_version_of_the_packages_on_one_page() -> None:
    version = release.project(release.packages(ROOT)[0])["version"]
    _, heading, entry = (ROOT / "CHANGELOG.md").read_text().partition(f"## [{version}] - ")
    assert heading
    assert 5 < len(entry.partition("\n## ")[0].splitlines()) <= 60


PROGRAM = """
from streamtable import Group, Input, Long, Persist, Count, Stream, String
from streamtable_testing import Tester

CLICKS = Stream("clicks", key=String(), value=String())
COUNTS = Group("counts", Input(CLICKS, aggregate=Count()), Persist(Long()))
with Tester() as tester:
    tester.run(COUNTS)
    tester.emit_many(CLICKS, [("ada", "/"), ("bob", "/"), ("ada", "/a")])
    print(sorted(tester.table(COUNTS).items()))
"""


def interpreter(version: str) -> str | None:
    """Return an interpreter of this version, on the path or of pyenv; None if this machine has none."""
    managed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python3"))
    for found in (shutil.which(f"python{version}"), *map(str, managed)):
        if found and subprocess.run([found, "-c", ""], check=False, capture_output=True).returncode == 0:
            return found
    return None


@pytest.mark.faults_long("it installs everything that the library needs, for each interpreter")
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_the_built_wheels_run_under_each_interpreter_of_the_machine(version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"this machine has no Python {version}")
    root = repository(tmp_path, (*NEEDED, "streamtable_testing"))
    wheels = [str(path) for path in release.build(root, root / "dist") if path.suffix == ".whl"]
    uv = [sys.executable, "-m", "uv"]
    place = tmp_path / "environment"
    subprocess.run([*uv, "venv", "--quiet", "--python", python, str(place)], check=True)
    inside = str(place / "bin" / "python")
    # What the command line needs, pinned, is what the library needs and a little more.
    locked = str(ROOT / "infra/docker/locks/cli.txt")
    install = [*uv, "pip", "install", "--quiet", "--no-deps", "--python", inside]
    subprocess.run([*install, "--require-hashes", "--requirement", locked], check=True, timeout=110)
    subprocess.run([*install, "--no-index", *wheels], check=True, timeout=60)
    done = subprocess.run([inside, "-c", PROGRAM], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout == "[('ada', 2), ('bob', 1)]\n"
