"""The program of the README makes the rows of the changes that the real connector wrote."""

import re
from pathlib import Path
from typing import Any

from libs.streamtable_capture.tests.recorded_topics import recorded
from libs.streamtable_capture.tests.shop_database import BIO

from streamtable_testing import Tester

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_program_of_the_readme_captures_customers() -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    program: dict[str, Any] = {"__name__": "shop"}
    exec(code, program)
    with Tester(partitions=3) as tester:
        tester.run(program["CUSTOMERS"])
        for each in recorded("plain", "customers"):
            tester.emit_raw("shop.public.customers", each.key, each.value, headers=each.headers)
        assert tester.table(program["CUSTOMERS"].table) == {7: program["Customer"](7, "anna", BIO)}
