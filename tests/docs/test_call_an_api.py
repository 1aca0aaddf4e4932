"""The page on calls: its programs run, and its test passes."""

import re
from pathlib import Path
from typing import Any

from streamtable import Long, Stream, String
from streamtable_testing import Tester

PAGE = (Path(__file__).parents[2] / "docs/how-to/call-an-api.md").read_text()
PROGRAM, FLOW, TEST, TIMEOUT = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_the_program_of_the_page_passes_the_test_of_the_page() -> None:
    page: dict[str, Any] = {}
    exec(PROGRAM, page)
    exec(TEST, page)
    with Tester() as tester:
        page["test_an_order_is_scored_when_the_api_is_back"](tester)
        decisions = [record.value for record in tester.records(page["DECISIONS"])]
        assert decisions == [{"order": 1, "accepted": True}]


def test_an_attempt_that_took_too_long_is_tried_again_as_in_the_test_of_the_page() -> None:
    page: dict[str, Any] = {}
    for block in (PROGRAM, TEST, TIMEOUT):
        exec(block, page)
    with Tester() as tester:
        page["test_an_order_is_scored_after_an_attempt_that_took_too_long"](tester)
        (record,) = tester.records(page["DECISIONS"])
        assert record.value == {"order": 1, "accepted": True}


def test_the_flow_of_the_page_counts_the_orders_that_are_accepted_in_the_hour_of_the_order() -> None:
    page: dict[str, Any] = {}
    exec(PROGRAM, page)
    exec(FLOW, page)
    hour_ms = 3_600_000
    with Tester() as tester:
        begin_ms = int(tester.clock.now() * 1000) // hour_ms * hour_ms - 2 * hour_ms
        tester.run(page["flow"])
        for number, at_ms in enumerate((begin_ms, begin_ms + 1, begin_ms + 2 * hour_ms)):
            tester.emit(page["ORDERS"], "ada", {"id": number}, timestamp_ms=at_ms)
        per_hour = Stream("accepted-per-hour", String(), Long())
        tester.calls(page["JUDGE"]).answer({"score": 9})
        assert tester.records(per_hour) == []  # a call of this hour is pending
        tester.calls(page["JUDGE"]).answer({"score": 1})
        assert [(record.key, record.value) for record in tester.records(per_hour)] == [("ada", 1)]
