"""`make site`: builds the documentation of this checkout as one version of a site of static files.

    build/site/index.html       leads to the newest version
    build/site/versions.json    the versions, newest first, as mike writes them: the switch in the header reads it
    build/site/0.1.0/           a version; versions that were built before stay

MkDocs and Mermaid are installed once, by their hashes, into the cache of downloads; after that no network is needed.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from localkafka.cache import cached, install_wheels
from localkafka.errors import SetupError

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
MKDOCS: Final = HERE / "mkdocs.txt"
MERMAID: Final = HERE / "mermaid.txt"
_VERSION = re.compile(r"\d+(\.\d+)*((a|b|rc|\.dev)\d+)?")


class SiteNotBuilt(Exception):
    """The pages have flaws: dead links or anchors, or pages that docs/README.md does not list."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the site. Returns 1 if it cannot be built or a link is dead, 2 if the version is malformed, else 0."""
    parser = argparse.ArgumentParser(prog="make site", description=__doc__)
    parser.add_argument("--version", default="")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site")
    given = parser.parse_args(arguments)
    version = (
        given.version
        or tomllib.loads((ROOT / "libs/streamtable/pyproject.toml").read_text())["project"]["version"]
    )
    if not _VERSION.fullmatch(version):
        print(f"site: {version!r} is not a version: give one such as 0.1.0", file=sys.stderr)
        return 2
    try:
        build(ROOT, given.out / version)
    except (SetupError, SiteNotBuilt) as error:
        print(f"site: {error}", file=sys.stderr)
        return 1
    list_versions(given.out)
    print(f"The site is in {given.out}/. To read it: {sys.executable} -m http.server --directory {given.out}")
    return 0


def build(root: Path, folder: Path) -> None:
    """Build the pages of a checkout into a folder. Raises `SetupError`, and `SiteNotBuilt` if a link is dead."""
    tools = {
        path: cached(f"site-{pinned(path)}", partial(install_wheels, path)) for path in (MKDOCS, MERMAID)
    }
    environment = {
        **os.environ,
        "PYTHONPATH": str(tools[MKDOCS]),
        "STREAMTABLE_SITE_MERMAID": str(tools[MERMAID] / "mermaidx" / "assets" / "mermaid.js"),
        "NO_MKDOCS_2_WARNING": "1",
    }
    # Not --quiet: MkDocs counts only the warnings that it shows.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "--site-dir", str(folder)]
    done = subprocess.run(command, check=False, cwd=root, env=environment, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        told = [line for line in done.stderr.splitlines() if not line.startswith("INFO")]
        raise SiteNotBuilt("\n".join(told))


def pinned(pins: Path) -> str:
    """Return the name and the version of the package that a file of pins is for."""
    found = re.search(r"^(mkdocs-material|mermaidx)==(\S+)", pins.read_text(), re.MULTILINE)
    assert found, pins
    return f"{found[1]}-{found[2]}"


def list_versions(site: Path) -> None:
    """Write the list of the versions in a site, and the page that leads to the newest one."""
    found = [path.name for path in site.iterdir() if _VERSION.fullmatch(path.name)]
    versions = sorted(found, key=_order, reverse=True)
    entries = [
        {"version": each, "title": each, "aliases": ["latest"] if each == versions[0] else []}
        for each in versions
    ]
    (site / "versions.json").write_text(json.dumps(entries, indent=1) + "\n")
    (site / "index.html").write_text(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Streamtable</title><link rel="icon" href="data:,">'
        f'<meta http-equiv="refresh" content="0; url={versions[0]}/"></head>'
        f'<body><a href="{versions[0]}/">Streamtable {versions[0]}</a></body></html>\n'
    )


def _order(version: str) -> tuple[list[int], bool, list[int]]:
    """Return a key that puts 0.10.0 after 0.9.0, and 0.10.0rc1 before 0.10.0."""
    release, _, rest = re.sub(r"(a|b|rc|\.dev)", r" \1 ", version, count=1).partition(" ")
    return (
        [int(part) for part in release.split(".")],
        not rest,
        [int(part) for part in re.findall(r"\d+", rest)],
    )


if __name__ == "__main__":
    sys.exit(main())
