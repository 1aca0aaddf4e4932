import json

from servicekit.status.graph import graph_of
from streamtable import (
    Avro,
    Context,
    Group,
    Input,
    Join,
    Json,
    Lookup,
    Loop,
    Output,
    Persist,
    Stream,
    String,
    Table,
)

CLICKS = Stream("clicks", key=String(), value=Json())
OUT = Stream("out", key=String(), value=Json())
AGAIN = Stream("full-loop", key=String(), value=Json())
OTHER = Table("other-table", String(), Json())
NAMES = Table("names", String(), Json())


def handle(ctx: Context[str, int], event: object) -> None: ...


def test_a_graph_has_the_topics_that_a_group_reads_and_writes_and_how() -> None:
    group: Group[str, int] = Group(
        "full",
        Input(CLICKS, handle),
        Loop(AGAIN, handle),
        Join(OTHER),
        Lookup(NAMES),
        Output(OUT),
        Persist(Avro("long")),
    )
    found = json.loads(graph_of(group))
    assert found["group"] == "full"
    assert [(each["topic"], each["how"]) for each in found["reads"]] == [
        ("clicks", "stream"),
        ("full-loop", "loop"),
        ("other-table", "join"),
        ("names", "lookup"),
        ("full-retry", "retry"),
    ]
    assert [(each["topic"], each["how"]) for each in found["writes"]] == [
        ("out", "stream"),
        ("full-loop", "loop"),
        ("full-table", "table"),
        ("full-dead-letters", "dead letters"),
    ]
    assert found["reads"][0]["codecs"] == "String → Json"
    assert found["writes"][2]["codecs"] == "String → Avro long"


def test_a_group_without_a_table_writes_none() -> None:
    group: Group[str, int] = Group("small", Input(CLICKS, handle))
    assert [each["how"] for each in json.loads(graph_of(group))["writes"]] == ["dead letters"]
