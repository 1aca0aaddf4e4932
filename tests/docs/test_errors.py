"""The page of errors names what there is, and nothing else."""

import ast
import re
from pathlib import Path

import streamtable
from streamtable.errors import StreamtableError

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs/reference/errors.md").read_text()
PUBLIC = {
    name
    for name in streamtable.__all__
    if isinstance(each := getattr(streamtable, name), type) and issubclass(each, StreamtableError)
}


def every_error() -> set[str]:
    found, todo = set(), [StreamtableError]
    while todo:
        below = todo.pop().__subclasses__()
        found |= {each.__name__ for each in below if each.__module__ == "streamtable.errors"}
        todo += below
    return found


def texts_of_the_code() -> list[str]:
    """Every text of the source, with … for what is filled in."""
    found = []
    for path in [*ROOT.glob("libs/*/src/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [str(p.value) if isinstance(p, ast.Constant) else "…" for p in node.values]
                found.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


def test_each_error_has_a_section_and_each_section_an_error() -> None:
    sections = set(re.findall(r"^### (\w+)$", PAGE, re.MULTILINE))
    assert sections == every_error() | PUBLIC - {"StreamtableError"}


def test_each_message_of_the_page_is_one_of_the_code() -> None:
    texts = texts_of_the_code()
    messages = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)
    quoted = [message for message in messages if not re.fullmatch(r"\w+", message)]
    assert len(quoted) > 20
    for message in quoted:
        assert any(message.removesuffix("…") in text for text in texts), message
