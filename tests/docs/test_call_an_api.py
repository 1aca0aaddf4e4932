"""The page on calls: its program runs, and its test passes."""

import re
from pathlib import Path
from typing import Any

from streamtable_testing import Tester

PAGE = (Path(__file__).parents[2] / "docs/how-to/call-an-api.md").read_text()
PROGRAM, TEST = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_the_program_of_the_page_passes_the_test_of_the_page() -> None:
    page: dict[str, Any] = {}
    exec(PROGRAM, page)
    exec(TEST, page)
    with Tester() as tester:
        page["test_an_order_is_scored_when_the_api_is_back"](tester)
        decisions = [record.value for record in tester.records(page["DECISIONS"])]
        assert decisions == [{"order": 1, "accepted": True}]
