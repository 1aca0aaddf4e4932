"""`make release VERSION=`: builds the distributions of libs/ as they are to be published, after the checks of RELEASING.md.

In dist/release-VERSION: an sdist and a wheel of each package, of the native loops a wheel for each kind of machine; `SHA256SUMS`,
and `sbom.cdx.json` with the packages and what they depend on. The bytes are the same whenever and wherever they are built from
this commit. Nothing is published.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

from infra import native_wheels
from rich.progress import track

from localkafka.cache import cached, install_wheels
from localkafka.errors import SetupError

ROOT: Final = Path(__file__).resolve().parent.parent
PINS: Final = ROOT / "infra" / "twine.txt"
_VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")


def main(arguments: Sequence[str] | None = None) -> int:
    """Build a release. Returns 2 if the commit is not ready for it, 1 if a distribution cannot be built or checked, else 0."""
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("version")
    version = parser.parse_args(arguments).version
    if found := list(problems(ROOT, version)):
        for problem in found:
            print(f"release: {problem}", file=sys.stderr)
        return 2
    folder = ROOT / "dist" / f"release-{version}"
    try:
        built = build(ROOT, folder)
        check(built)
    except (SetupError, native_wheels.WheelRefused, subprocess.CalledProcessError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    write_lists(folder, version, built)
    print(
        f"{len(built)} distributions are in {folder.relative_to(ROOT)}/; RELEASING.md says how they are published"
    )
    return 0


def problems(root: Path, version: str) -> Iterator[str]:
    """Yield the reasons why a commit cannot be released as this version, each with what to do."""
    if not _VERSION.fullmatch(version):
        yield f"{version!r} is no version: give one such as 0.1.0 or 0.2.0rc1"
        return
    if changed := _git(root, "status", "--porcelain"):
        yield f"the tree has changes that are not committed: {', '.join(line[3:] for line in changed[:3])}"
    if _git(root, "tag", "--list", f"v{version}"):
        yield f"the tag v{version} exists: a version is released once"
    if not re.search(
        rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", _read(root / "CHANGELOG.md"), re.MULTILINE
    ):
        yield f"CHANGELOG.md has no heading '## [{version}] - YYYY-MM-DD': make it of Unreleased"
    for path in packages(root):
        package = project(path)
        if (found := package["version"]) != version:
            yield f"{path.relative_to(root)} has version {found!r}, not {version!r}"
        asked = [*package.get("dependencies", ()), *chain(*package.get("optional-dependencies", {}).values())]
        for each in {each.partition(" ;")[0] for each in asked if each.startswith("streamtable")}:
            name, exact, found = each.partition("==")
            if exact and found != version:
                yield f"{path.relative_to(root)} asks for {each!r}, not '{name}=={version}'"


def packages(root: Path) -> list[Path]:
    """Return the pyproject.toml of each package that is published."""
    return sorted(root.glob("libs/*/pyproject.toml"))


def project(path: Path) -> dict[str, Any]:
    """Return the table `project` of a pyproject.toml."""
    found: dict[str, Any] = tomllib.loads(path.read_text())["project"]
    return found


def build(root: Path, folder: Path) -> list[Path]:
    """Build an sdist of each package and its wheels into an empty folder.

    Raises:
        CalledProcessError: A package cannot be built.
        WheelRefused: A wheel of the native loops would not be what its name says.
        SetupError: The compiler for these wheels cannot be fetched.
    """
    shutil.rmtree(folder, ignore_errors=True)
    (committed,) = _git(root, "log", "-1", "--format=%ct")
    command = [
        sys.executable,
        "-m",
        "uv",
        "build",
        "--quiet",
        "--no-build-isolation",
        "--out-dir",
        str(folder),
    ]
    for path in track(packages(root), "Building", disable=not sys.stderr.isatty()):
        if path.parent == root / native_wheels.PACKAGE:
            native_wheels.build(root, folder, int(committed))
            continue
        subprocess.run(
            [*command, str(path.parent)], check=True, env={**os.environ, "SOURCE_DATE_EPOCH": committed}
        )
    return sorted([*folder.glob("*.whl"), *folder.glob("*.tar.gz")])


def check(built: Sequence[Path]) -> None:
    """Let twine look at the metadata and at each page that an index would show. Raises `CalledProcessError`, `SetupError`."""
    version = PINS.read_text().partition("twine==")[2].split()[0]
    tool = cached(f"twine-{version}", partial(install_wheels, PINS))
    command = [sys.executable, "-m", "twine", "--no-color", "check", "--strict", *map(str, built)]
    subprocess.run(
        command, check=True, env={**os.environ, "PYTHONPATH": str(tool)}, stdout=subprocess.DEVNULL
    )


def write_lists(folder: Path, version: str, built: Sequence[Path]) -> None:
    """Write the checksums, and the packages with what they depend on as CycloneDX 1.5."""
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in built}
    (folder / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in sums.items()))
    found = [project(path) for path in packages(ROOT)]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "library", "name": "streamtable", "version": version}},
        "components": [component(each, version, sums) for each in found],
    }
    (folder / "sbom.cdx.json").write_text(json.dumps(document, indent=1) + "\n")


def component(package: dict[str, Any], version: str, sums: dict[str, str]) -> dict[str, Any]:
    """Return the CycloneDX component of a package: its wheels, its licence, and the ranges of versions that it depends on."""
    name = package["name"]
    begins = f"{name.replace('-', '_')}-{version}-"
    wheels = [each for each in sums if each.startswith(begins) and each.endswith(".whl")]
    return {
        "type": "library",
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name}@{version}",
        "hashes": [{"alg": "SHA-256", "content": sums[wheel]} for wheel in wheels],
        "licenses": [{"expression": package["license"]}],
        "properties": [
            {"name": "streamtable:depends-on", "value": each} for each in package.get("dependencies", ())
        ],
    }


def _git(root: Path, *arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
