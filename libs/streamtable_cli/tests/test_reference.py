"""The reference page matches the commands' help."""

from pathlib import Path

from streamtable_cli.reference import page

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "cli.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make gen`"


def test_the_page_names_every_command_with_its_options() -> None:
    for heading in (
        "topics tail",
        "table watch",
        "group reset",
        "dead-letters replay",
        "graph show",
        "doctor",
    ):
        assert f"### `streamtable {heading}`" in page()
    assert "| `--empty-table` |" in page()
