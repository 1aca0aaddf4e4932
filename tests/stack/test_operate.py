"""The pages on operating name commands, verbs, settings and alerts that exist."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from streamtable_cli.main import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted((ROOT / "docs/operate").glob("*.md")), ROOT / "docs/how-to/run-the-stack.md"]
MAKEFILE = (ROOT / "Makefile").read_text()
EXPLAINED = "".join(
    (ROOT / path).read_text()
    for path in (
        "docs/reference/settings.md",
        "docs/how-to/run-the-stack.md",
        "docker-compose.yml",
        "infra/images.py",
    )
)


def code_of(page: Path) -> list[str]:
    """Everything that stands in backquotes or in a block, by lines."""
    text = page.read_text()
    blocks = re.findall(r"^ *```\w*\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)
    inline = re.findall(r"`([^`]+)`", re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE))
    return [line.strip() for block in blocks for line in block.splitlines()] + [
        " ".join(each.split()) for each in inline
    ]


def follow(words: list[str]) -> None:
    """Walk down the commands as the command line would; every option must be known."""
    command: Any = get_command(app)
    for at, word in enumerate(words):
        if word.startswith("-"):
            known = {option for parameter in command.params for option in parameter.opts}
            assert word in known, f"{command.name} has no {word}"
        elif word in getattr(command, "commands", {}):
            command = command.commands[word]
        else:
            assert not getattr(command, "commands", {}), (
                f"{command.name} has no command {word}: {words[: at + 1]}"
            )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_page_exists_with_its_options(page: Path) -> None:
    for line in code_of(page):
        found = re.match(r"(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?streamtable ((?:\w|-)[^#|]*)", line)
        if found is not None:
            follow(shlex.split(found[1]))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_verb_of_a_page_is_in_the_makefile(page: Path) -> None:
    for verb in [found[1] for line in code_of(page) if (found := re.match(r"make ([a-z][a-z-]*)", line))]:
        assert re.search(rf"^{verb}:", MAKEFILE, re.MULTILINE), verb


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_setting_of_a_page_is_explained(page: Path) -> None:
    for name in re.findall(r"\b(?:STREAMTABLE|SERVICEKIT|STACK)_[A-Z_]+\b", page.read_text()):
        assert name in EXPLAINED or name.startswith("STREAMTABLE_KAFKA_"), name


def test_every_file_of_infra_that_a_page_names_is_there() -> None:
    for page in PAGES:
        for path in re.findall(r"`(infra/[\w./@-]+)`", page.read_text()):
            assert (ROOT / path).exists(), f"{page.name}: {path}"
