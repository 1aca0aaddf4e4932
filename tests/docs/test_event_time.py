"""The page on event time: its program runs, and says of records what the page says."""

import re
from pathlib import Path
from typing import Any

import pytest

from streamtable_testing import Tester

PAGE = (Path(__file__).parents[2] / "docs/explanation/event-time.md").read_text()
(PROGRAM,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_the_program_of_the_page_tells_late_records(capsys: pytest.CaptureFixture[str]) -> None:
    page: dict[str, Any] = {}
    exec(PROGRAM, page)
    with Tester() as tester:
        tester.run(page["GROUP"])
        for at_ms in (100_000, 170_000, 110_000, 120_000):
            tester.emit(page["CLICKS"], "ada", {"at_ms": at_ms})
        assert tester.watermark_ms(page["GROUP"]) == 170_000
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("ada")]
    assert lines == [
        "ada 100000 -1 in time",
        "ada 170000 100000 in time",
        "ada 110000 170000 late",
        "ada 120000 170000 in time",
    ]
