"""Graph models of groups."""

from typing import Any

import pytest

from streamtable import Avro, Count, Group, Input, Json, Long, OnError, Output, Persist, Stream, String, Table
from streamtable.graph.group import Changes, Join, Lookup, Loop, Visit
from streamtable_admin.errors import Refused
from streamtable_admin.graph_model import NodeKind, model_of


def remember(ctx: Any, event: Any) -> None: ...


def stream(name: str) -> Stream[str, Any]:
    return Stream(name, String(), Json())


COUNTS = Group("counts", Input(stream("clicks"), aggregate=Count()), Persist(Avro("long")))
ORDERS: Group[str, Any] = Group(
    "orders",
    Input(stream("placed"), remember, on_error=OnError.DEAD_LETTER),
    Input(stream("clicks"), lambda ctx, event: None),
    Input(stream("corrected"), remember),
    Persist(Json()),
    Output(stream("large")),
)
CHECKS: Group[str, Any] = Group("checks", Input(stream("large"), remember), Output(stream("corrected")))
REPORT: Group[str, Any] = Group("report", Input(stream("orders-table"), remember), Persist(Long()))
ALL = (COUNTS, ORDERS, CHECKS, REPORT)

NAMES_OF_USERS: Table[str, Any] = Table("names", String(), Json())
LOOP: Stream[str, Any] = stream("status-loop")
STATUS: Group[str, Any] = Group(
    "status",
    Input(stream("logins"), remember),
    Join(COUNTS.table, wait=0.5),
    Changes(COUNTS.table, remember, start="earliest"),
    Lookup(NAMES_OF_USERS),
    Loop(LOOP, remember, on_error=OnError.SKIP),
    Persist(Json()),
    Output(stream("alerts")),
    Visit("age", remember),
    Visit("drop", remember),
)
WARNED: Group[str, Any] = Group(
    "warned", Input(stream("alerts"), remember), Join(STATUS.table), Persist(Json()), Output(stream("clicks"))
)
JOINED = (COUNTS, STATUS, WARNED)
"""Three groups that feed one another by streams and tables."""


def test_groups_are_joined_through_the_topics_that_they_share() -> None:
    model = model_of(ALL)
    assert [name for name in model.nodes if name == "topic clicks"] == ["topic clicks"]
    edges = {(edge.source, edge.target): edge.label for edge in model.edges}
    assert edges["topic clicks", "group counts"] == "Count()"
    assert edges["topic clicks", "group orders"] == "handler"
    assert edges["topic placed", "group orders"] == "remember, on error dead letter"
    assert edges["group orders", "topic large"] == ""
    assert ("topic large", "group checks") in edges
    # A table that another group reads stays a table.
    assert model.nodes["topic orders-table"].kind is NodeKind.TABLE
    assert ("topic orders-table", "group report") in edges
    assert model.nodes["topic counts-table"].detail == "String → Avro long"


def test_joins_lookups_loops_and_visits_are_edges() -> None:
    model = model_of(JOINED)
    edges = {(edge.source, edge.target): edge.label for edge in model.edges}
    assert edges["topic counts-table", "group status"] == "join, waits 0.5 s; changes: remember"
    assert edges["topic status-table", "group warned"] == "join"
    assert edges["topic names", "group status"] == "lookup"
    assert edges["topic status-loop", "group status"] == "remember, on error skip"
    assert edges["group status", "topic status-loop"] == "loop"
    assert edges["topic status-visits", "group status"] == "age, drop"
    kinds = {node.label: node.kind for node in model.nodes.values()}
    assert (kinds["status-loop"], kinds["status-visits"], kinds["names"]) == ("loop", "visits", "table")
    assert kinds["counts-table"] is NodeKind.TABLE
    assert len(model.edges) == len(set(model.edges))


def test_dead_letters_and_retries_are_drawn_when_asked_for() -> None:
    assert "topic counts-retry" not in model_of([COUNTS]).nodes
    assert model_of([COUNTS], aside=True).nodes["topic counts-retry"].kind is NodeKind.ASIDE


def test_two_groups_of_one_name_are_refused() -> None:
    with pytest.raises(Refused, match="'counts'"):
        model_of([COUNTS, COUNTS])
