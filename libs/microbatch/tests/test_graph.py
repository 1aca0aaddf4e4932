from pathlib import Path
from typing import Any

import pytest

from microbatch import Batch, MicroBatch, Rows, Send
from streamtable import App, Kafka, Long, Stream, String
from streamtable.errors import GraphError
from streamtable_admin.graph_model import model_of

EVENTS = Stream("events", String(), Long())
OUT = Stream("out", String(), Long())
TOTALS = Rows("totals", value=Long())


def fold(batch: Batch, send: Send) -> None: ...


def yields(batch: Batch, send: Send) -> Any:
    yield


async def yields_async(batch: Batch, send: Send) -> Any:
    yield


def graph(**settings: Any) -> MicroBatch:
    return MicroBatch("g", **{"inputs": [EVENTS], "process": fold, **settings})


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"inputs": []}, "reads nothing"),
        ({"inputs": [EVENTS, EVENTS]}, "two Inputs"),
        ({"inputs": [EVENTS, Stream("more", Long(), Long())]}, "keyed differently"),
        ({"outputs": [Stream("g-retry", String(), Long())]}, "its own"),
        ({"rows": [TOTALS, TOTALS]}, "the same name"),
        ({"max_records": 0}, "at least 1 record"),
        ({"max_bytes": 0}, "at least 1 record"),
        ({"max_wait": -1.0}, "waits for 0 to 3600 s"),
        ({"max_wait": float("nan")}, "waits for 0 to 3600 s"),
        ({"process": yields}, "has a yield, so nothing would run it"),
        ({"process": yields_async}, "has a yield, so nothing would run it"),
    ],
)
def test_a_contradictory_graph_is_rejected(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(GraphError, match=says):
        graph(**settings)


def test_the_name_of_rows_follows_the_rules_of_topic_names() -> None:
    with pytest.raises(GraphError, match="kind of rows"):
        Rows("a/b", value=Long())


def test_a_micro_batch_can_be_drawn_like_other_groups() -> None:
    edges = {(edge.source, edge.target, edge.label) for edge in model_of([graph(outputs=[OUT])]).edges}
    assert edges == {("topic events", "group g", "fold"), ("group g", "topic out", "")}


def test_an_ordinary_processor_rejects_a_micro_batch(tmp_path: Path) -> None:
    with pytest.raises(
        GraphError, match="run it with a processor of this kind, such as BatchProcessor, or give tasks="
    ):
        App(Kafka("localhost:1"), tmp_path).processor(graph())
