"""Writes the table of STREAMTABLE_... in docs/reference/settings.md, from `Settings`. Run by `make gen`."""

from pathlib import Path
from typing import Any

import griffe

from streamtable.base.environment import Check
from streamtable.base.settings import PREFIX, Settings

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "settings.md"
BEGIN, END = "<!-- table: made by make gen -->\n", "<!-- end of table -->\n"
OWN_DEFAULT = " Default: "


def page(text: str) -> str:
    """Return the page with a new table, in the place of the old one."""
    before, _, behind = text.partition(BEGIN)
    _, _, after = behind.partition(END)
    head = "| Variable | Meaning | Values | Default |\n| --- | --- | --- | --- |\n"
    rows = "".join(f"| {' | '.join(row)} |\n" for row in table())
    return f"{before}{BEGIN}{head}{rows}{END}{after}"


def table() -> list[tuple[str, str, str, str]]:
    """Return variable, meaning, values and default of each setting."""
    docstring = griffe.Docstring(Settings.__doc__ or "").parse("google", warnings=False)
    texts = {
        each.name: " ".join(each.description.split())
        for section in docstring
        if isinstance(section, griffe.DocstringSectionAttributes)
        for each in section.value
    }
    found = []
    for name, field in Settings.declared.items():
        if name == "kafka":  # it is not read from one variable
            continue
        meaning, _, default = texts[name].partition(OWN_DEFAULT)
        shown = default.removesuffix(".") or f"`{_text(field.default)}`"
        found.append((f"`{PREFIX}{name.upper()}`", _clause(meaning), _values(Settings.checks[name]), shown))
    return found


def _clause(text: str) -> str:
    """Return a sentence as a clause: of several, the point of the last one alone is dropped."""
    start = text[:1] if text[1:2].isupper() or text.startswith("Kafka") else text[:1].lower()
    return start + text[1:].removesuffix(".")


def _text(default: Any) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    return (
        f"{default:g}"
        if isinstance(default, float) and default != int(default)
        else str(default).removesuffix(".0")
    )


def _values(check: Check) -> str:
    """Return what a setting accepts, in the words of its own refusal."""
    try:
        check(object())
    except ValueError as refusal:
        return str(refusal)
    return "anything"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
