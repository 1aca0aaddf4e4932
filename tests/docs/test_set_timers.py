"""The page on timers: its program runs, and reminds whom the page says."""

import re
from pathlib import Path
from typing import Any

from streamtable_testing import Tester

PAGE = (Path(__file__).parents[2] / "docs/how-to/set-timers.md").read_text()
(PROGRAM,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_the_program_of_the_page_reminds_of_the_carts_that_were_not_ordered() -> None:
    page: dict[str, Any] = {}
    exec(PROGRAM, page)
    group, carts = page["GROUP"], page["CARTS"]
    with Tester() as tester:
        tester.run(group)
        tester.emit(carts, "ada", {"country": "at"})
        tester.emit(carts, "bob", {"country": "at"})
        tester.advance(25 * 60)
        tester.emit(carts, "bob", {"country": "at", "ordered": True})
        tester.crash(group)
        tester.start(group, disk=False)
        assert tester.records(page["REMINDERS"]) == []
        tester.advance(10 * 60)
        reminded = [(record.key, record.value) for record in tester.records(page["REMINDERS"])]
        assert reminded == [("ada", "your cart waits in at")]
        assert tester.table(group, page["PER_COUNTRY"]) == {"at": 2}
