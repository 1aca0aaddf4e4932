"""The program of the page on security logs in by tokens."""

import re
from pathlib import Path
from typing import Any

PAGE = (Path(__file__).resolve().parents[2] / "docs/operate/security.md").read_text()


def test_the_program_makes_a_cluster_that_fetches_tokens() -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {"ask_the_issuer": lambda: ("a-token", 600)}
    exec(compile(program, "security.md", "exec"), names)
    assert names["kafka"].token().value == "a-token"
    names["kafka"].producer().close(0)  # which has asked for a token
