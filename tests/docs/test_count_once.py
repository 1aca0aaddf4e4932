"""The page on events that are sent twice: its group counts once what its client sends until it is known."""

import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from streamtable_testing import Tester

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs/how-to/count-once.md").read_text("utf-8")
GROUP, CLIENT = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_the_client_of_the_page_repeats_and_its_group_counts_once(
    tester: Tester, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: dict[str, Any] = {}
    exec(GROUP + CLIENT, names)
    monkeypatch.setattr("time.sleep", lambda _: None)
    tester.run(names["PAYMENT_COUNT"])
    answers = iter([False, False, True])

    def send(user: str, payment: Any) -> None:
        tester.emit(names["PAYMENTS"], user, payment)
        if not next(answers):
            raise TimeoutError

    assert names["send_until_known"](send, "alice", {"id": str(uuid4()), "cents": 5})
    assert tester.table(names["PAYMENT_COUNT"]) == {"alice": 1}
    assert len(tester.records(names["PAYMENTS"])) == 3
