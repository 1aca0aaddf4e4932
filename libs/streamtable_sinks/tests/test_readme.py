"""The test in the package's README passes."""

import re
from pathlib import Path
from typing import Any

from streamtable_testing import Tester

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_test_in_the_readme_passes(tester: Tester) -> None:
    program, test = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, Any] = {}
    exec(program, names)
    exec(test, names)
    names["test_the_last_row_of_each_shop_is_written"](tester)
