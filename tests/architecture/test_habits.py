"""What runs at a commit is what `make lint` runs, and the files that CONTRIBUTING names are there."""

import json
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "libs/streamtable/src/streamtable"


def test_the_hooks_of_a_commit_are_the_checks_of_make_lint() -> None:
    (repo,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    hooks = {hook["entry"].removeprefix(".venv/bin/").split(" ")[0] for hook in repo["hooks"]}
    (recipe,) = re.findall(r"^lint:.*?\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert hooks == set(re.findall(r"\$\(BIN\)/([\w-]+)", recipe))


def test_a_container_for_development_is_set_up_as_the_readme_says() -> None:
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    assert container["postCreateCommand"] == "make setup"
    assert "/" not in container["image"]  # no registry is named


def files_of_changes() -> list[str]:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    (table,) = re.findall(r"^## Ten changes.*?(?=^## )", page, re.DOTALL | re.MULTILINE)
    rows = [row.split("|")[2] for row in re.findall(r"^\|.*\|$", table, re.MULTILINE)[2:]]
    return sorted({path for row in rows for path in re.findall(r"`([\w./]+[/.][\w./]*)`", row)})


@pytest.mark.parametrize("path", files_of_changes())
def test_a_file_that_contributing_names_is_there(path: str) -> None:
    assert any((folder / path).exists() for folder in (LIBRARY, ROOT, ROOT / "libs/streamtable"))
