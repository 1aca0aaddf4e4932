"""The commands, graphs and topics on the pages about versions and visits are valid."""

import re
import shlex
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from streamtable import Group
from streamtable_admin.declared import Declared
from streamtable_cli.main import app

FOLDER = Path(__file__).parents[3] / "docs" / "how-to"
PAGES = [(FOLDER / name).read_text("utf-8") for name in ("run-two-versions.md", "visit-every-row.md")]


def blocks(page: str, language: str) -> list[str]:
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```$", page, re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(each) for each in found]


COMMANDS = [
    line
    for page in PAGES
    for block in blocks(page, "")
    for line in block.splitlines()
    if line.startswith("streamtable ")
]


@pytest.mark.parametrize("line", COMMANDS)
def test_the_commands_on_the_pages_exist_with_their_options(line: str) -> None:
    command: Any = get_command(app)
    arguments = shlex.split(line)[1:]
    context = command.make_context("streamtable", arguments)
    while hasattr(command, "commands"):
        rest = [*context._protected_args, *context.args]
        _, command, rest = command.resolve_command(context, rest)
        context = command.make_context(command.name, rest, parent=context)
    assert context.params


@pytest.mark.parametrize("page", PAGES)
def test_the_graph_on_a_page_is_valid(page: str) -> None:
    (snippet,) = blocks(page, "python")
    names: dict[str, Any] = {}
    exec(snippet, names)
    group = names["COUNTS"] if "COUNTS" in names else names["counting"]("click-count-v2")
    assert isinstance(group, Group)
    assert [visit.name for visit in group.visits] == (["forget-below"] if "COUNTS" in names else [])


@pytest.mark.parametrize("page", PAGES)
def test_the_topics_on_a_page_can_be_declared(page: str) -> None:
    (declared,) = blocks(page, "yaml")
    topics = Declared.model_validate({"topics": {"user-clicks": None}, **yaml.safe_load(declared)})
    assert {"click-count-v2-table", "click-count-table"} <= topics.descriptions().keys() or (
        "counts-visits" in topics.descriptions()
    )
