"""The test in the package's README passes; test_processor.py tests the program."""

import re
from pathlib import Path
from typing import Any

from streamtable_testing import Tester

README = (Path(__file__).parent.parent / "README.md").read_text()
CLICK = {"id": "1", "user_id": "alice", "url": "https://example.org/", "at": 1}


def test_the_test_in_the_readme_passes(tester: Tester) -> None:
    program, test = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, Any] = {"Tester": Tester, "CLICK": CLICK}
    exec(program, names)
    exec(test, names)
    names["test_each_click_counts"](tester)
