"""The page about flows: its aggregate of one's own is run as it stands there."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streamtable import Aggregate, Json, Long, Stream, String
from streamtable.errors import GraphError
from streamtable.flow import Flow, Session
from streamtable_testing.tester import Tester

PAGE = (Path(__file__).resolve().parents[2] / "docs/explanation/flows.md").read_text()
NUMBERS = Stream("numbers", String(), Long())


def test_the_aggregate_on_the_page_folds_streams_and_sessions_and_is_refused_for_tables(
    tester: Tester,
) -> None:
    (program,) = re.findall(r"<!-- aggregate -->\n\n```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {"Aggregate": Aggregate}
    exec(program, names)
    spread: Aggregate[int, Any] = names["Spread"]()
    flow = Flow("f")
    stream = flow.stream(NUMBERS, time=lambda at: at)
    rows = stream.group_by_key().fold("spread", spread, value=Json())
    second = timedelta(seconds=1)
    sessions = (
        stream.group_by_key().window(Session(second, grace=second)).fold("by-session", spread, value=Json())
    )
    tester.run(flow)
    for at in (1_000, 2_500, 1_700, 9_000):
        tester.emit(NUMBERS, "a", at)
    assert tester.table(rows.table) == {"a": {"least": 1_000, "greatest": 9_000}}
    found = {key.start_ms: row for key, row in tester.table(sessions.table).items()}
    assert found[1_000] == {"least": 1_000, "greatest": 2_500}
    with pytest.raises(GraphError, match=r"Spread has no subtract\(\)"):
        stream.to_table("t").group_by("by", str, key=String()).fold("g", spread, value=Json())
