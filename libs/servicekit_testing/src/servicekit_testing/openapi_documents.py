"""OpenAPI documents as files of the repository: written from the code, and compared with released ones.

A released document is in `history/NAME/<version>.json` beside the present ones and never changes. While an API's
version begins with the same number, every later document must be compatible with clients of the earlier ones.
"""

import json
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from servicekit_testing.openapi_changes import breaking_changes

Document = Mapping[str, Any]


def problems(name: str, document: Document, target: Path) -> list[str]:
    """Return the problems with the files of one document."""
    path = target / f"{name}.json"
    found = []
    if not path.exists() or path.read_text("utf-8") != _text(document):
        found.append(f"{path.name} is not current: make gen")
    version = document["info"]["version"]
    for released in sorted((target / "history" / name).glob(f"{version.split('.')[0]}.*.json")):
        breaks = breaking_changes(json.loads(released.read_text("utf-8")), document)
        found += [f"{name} breaks clients of {released.stem}: {change}" for change in breaks]
    return found


def release(name: str, document: Document, target: Path) -> str | None:
    """Store a document as the release of its version. Returns an error text if that is not allowed."""
    path = target / "history" / name / f"{document['info']['version']}.json"
    if path.exists() and path.read_text("utf-8") != _text(document):
        return f"{name} {path.stem} was released before and has changed: give it a new version"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_text(document), "utf-8")
    return None


def main(documents: Mapping[str, Document], arguments: Sequence[str], target: Path) -> int:
    """Run the command line of a service's generator. Returns the exit code.

    Args:
        documents: The documents by name.
        arguments: Empty: write the documents; `--check`: write nothing; `--release`: store them as releases too.
        target: The folder of the files.
    """
    parser = ArgumentParser(description="Write the OpenAPI documents, and compare them with released ones.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if there are problems")
    parser.add_argument(
        "--release", action="store_true", help="also store the documents as the releases of their versions"
    )
    given = parser.parse_args(arguments)
    found: list[str] = []
    for name, document in documents.items():
        if not given.check:
            target.mkdir(parents=True, exist_ok=True)
            (target / f"{name}.json").write_text(_text(document), "utf-8")
        found += problems(name, document, target)
        if given.release and not found:
            refused = release(name, document, target)
            found += [refused] if refused else []
    sys.stderr.write("".join(f"{problem}\n" for problem in found))
    return 1 if found else 0


def _text(document: Document) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
