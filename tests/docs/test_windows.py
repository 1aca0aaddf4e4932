"""The page about windows: its tables and its pictures say what comes out, and that is what comes out."""

from pathlib import Path
from typing import Any

import pytest
from tests.docs.pages import steps_of
from tests.docs.window_tables import BEGAN_MS, PICTURES, WINDOWS, picture_of, rows_of

from streamtable.flow import Windowed
from streamtable_testing.tester import Tester

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/explanation/windows.md").read_text(encoding="utf-8")


def table_of(kind: str) -> list[list[str]]:
    """Return the rows of the table behind a comment."""
    lines = PAGE.split(f"<!-- {kind} -->")[1].strip().split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in lines[2:]]


@pytest.mark.parametrize("kind", WINDOWS)
def test_what_the_page_says_of_a_window_comes_out(kind: str) -> None:
    assert table_of(kind) == rows_of(kind)


@pytest.mark.parametrize("kind", WINDOWS)
def test_the_picture_of_a_window_shows_what_comes_out(kind: str) -> None:
    """After a change, `python tests/docs/window_tables.py` draws the pictures again."""
    assert (PICTURES / f"{kind}.svg").read_text(encoding="utf-8") == picture_of(kind)
    assert f"(windows/{kind}.svg)" in PAGE


@pytest.mark.parametrize("page", sorted((ROOT / "docs/coming-from").glob("*.md")), ids=lambda path: path.stem)
def test_the_program_for_those_who_come_from_elsewhere_counts_by_page_and_minute(
    page: Path, tester: Tester
) -> None:
    (program,) = [
        step.text for step in steps_of(page.read_text(encoding="utf-8")) if step.title == "page_minutes.py"
    ]
    names: dict[str, Any] = {}
    exec(compile(program, "page_minutes.py", "exec"), names)
    views, out = names["VIEWS"], names["PAGE_MINUTES"]
    minute = BEGAN_MS // 60_000 * 60_000
    tester.create(out)
    tester.run(names["flow"])
    for second, bot in ((0, False), (59, False), (5, True), (20, False), (71, False)):
        tester.emit(views, "alice", {"at": minute + 1000 * second, "page": "/home", "bot": bot})
    assert [(each.key, each.value) for each in tester.records(out)] == [
        (Windowed("/home", minute, minute + 60_000), 3)
    ]
