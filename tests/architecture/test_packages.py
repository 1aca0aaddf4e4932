"""Every distribution can be published: a name that is the project's own, and a README for those who find it."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MEMBERS = sorted(
    path for room in ("libs/*", "services/*", "spark") for path in ROOT.glob(f"{room}/pyproject.toml")
)


def project(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(path.read_text())["project"]
    return found


@pytest.mark.parametrize("path", MEMBERS, ids=lambda path: path.parent.name)
def test_a_distribution_is_named_after_the_project(path: Path) -> None:
    name = project(path)["name"]
    assert name == "streamtable" or name.startswith("streamtable-")


@pytest.mark.parametrize("path", MEMBERS, ids=lambda path: path.parent.name)
def test_a_distribution_has_a_readme_whose_pages_exist(path: Path) -> None:
    text = (path.parent / project(path)["readme"]).read_text()
    assert text.startswith("# ")
    pages = {word.strip("`().,;:") for word in text.split() if "docs/" in word and ".md" in word}
    missing = {page for page in pages if not (ROOT / page[page.index("docs/") :].rstrip("`)")).exists()}
    assert not missing
