"""The page on retries: its program runs, and its test passes."""

import re
from pathlib import Path
from typing import Any

from streamtable_testing import Tester

PAGE = (Path(__file__).parents[2] / "docs/how-to/retry-without-losing-the-order.md").read_text()
PROGRAM, TEST = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_the_program_of_the_page_passes_the_test_of_the_page() -> None:
    page: dict[str, Any] = {}
    exec(PROGRAM, page)
    exec(TEST, page)
    with Tester() as tester:
        page["test_a_transfer_waits_for_its_rate_and_the_next_one_of_its_account_behind_it"](tester)
