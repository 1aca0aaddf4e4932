"""Generates the reference page of the command line from the commands' own help.

python -m streamtable_cli.reference docs/reference/cli.md
"""

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from streamtable_cli.main import app

HEAD = """# The command line

Generated from the commands' help by `make gen`; do not edit. `pip install streamtable[cli]` installs the command.

The options of `streamtable` itself stand before the command: `streamtable --bootstrap-servers kafka:9092 topics list`.
`--json` prints one document, or one object per line where records or rows are shown. Results go to standard output;
errors, notes and progress to standard error. `streamtable --install-completion` sets up completion for your shell.
"""
_HIDDEN = {"help", "install_completion", "show_completion"}


def page() -> str:
    """Return the whole page."""
    lines = [HEAD]
    for path, command in _commands("streamtable", get_command(app)):
        lines += _section(path, command)
    return "\n".join(lines).rstrip() + "\n"


def _commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        yield from _commands(f"{path} {name}", each)


def _section(path: str, command: Any) -> list[str]:
    group = hasattr(command, "commands")
    context = command.context_class(command, info_name=path)
    lines = [f"{'##' if group else '###'} `{path}`", "", inspect.cleandoc(command.help or ""), ""]
    if not group:
        pieces = " ".join([path, *command.collect_usage_pieces(context)])
        lines += ["```", re.sub(r"[{}]", "", pieces), "```", ""]
    shown = [
        each for each in command.params if each.name not in _HIDDEN and not getattr(each, "hidden", False)
    ]
    records = [each.get_help_record(context) for each in shown]
    if records:
        lines += ["| Argument or option | Meaning |", "| --- | --- |"]
        lines += [f"| `{_escaped(name)}` | {_escaped(text).replace('<', '&lt;')} |" for name, text in records]
        lines.append("")
    if command.epilog:
        lines += [command.epilog, ""]
    return lines


def _escaped(text: str) -> str:
    """Return the text on one line, for a table cell."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
