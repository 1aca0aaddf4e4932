"""`streamtable graph`: groups as text, Mermaid, JSON and text of Graphviz."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from libs.streamtable_cli.tests.bench import Cli

from streamtable import Avro, Count, Group, Input, Json, Long, OnError, Output, Persist, Stream, String, Table
from streamtable.graph.group import Changes, Join, Lookup, Loop, Visit
from streamtable_admin.graph_model import GraphModel, GraphNode, NodeKind, model_of
from streamtable_cli.graphs import dot_of, text_of


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


def test_text_lists_all_edges() -> None:
    text = text_of(JOINED)
    assert "  joins   counts-table (String → Avro long), waits 0.5 s for it\n" in text
    assert "  changes counts-table, from the earliest: remember\n" in text
    assert "  looks   names (String → Json) up\n" in text
    assert "  loops   status-loop (String → Json): remember, on error skip\n" in text
    assert "  visits  age by status-visits: remember\n" in text
    assert "  feeds   status (join) by counts-table\n" in text
    assert "  feeds   warned by alerts\n" in text
    assert text.count("status-loop") == 1


def test_the_text_of_graphviz_has_all_nodes_and_edges() -> None:
    model = model_of(ALL, aside=True)
    text = dot_of(model)
    assert text.startswith("digraph {\n")
    assert text.endswith("\n}\n")
    assert all(f'label="{node.label}' in text for node in model.nodes.values())
    assert text.count(" -> ") == len(model.edges)
    assert 'label="remember, on error dead letter"' in text


def test_names_are_escaped_in_the_text_of_graphviz() -> None:
    node = GraphNode("n", NodeKind.GROUP, 'a "b" \\', "c")
    line = next(each for each in dot_of(GraphModel({"n": node}, [])).splitlines() if "n0" in each)
    assert line.startswith('  n0 [label="a \\"b\\" \\\\\\nc" shape=box')


# ---- the command -----------------------------------------------------------------------------------------------------------

SHOP = """
from streamtable import *
CLICKS = Stream("clicks", String(), Long())
COUNTS = Group("counts", Input(CLICKS, aggregate=Count()), Persist(Long()), )
MORE = Group("more", Input(CLICKS, aggregate=Count()), Persist(Long()))
from streamtable.flow import Flow
FLOW = Flow("views")
FLOW.stream(CLICKS).group_by("by-number", str, key=String()).count("numbers")
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "drawn_shop.py").write_text(SHOP)
    yield "drawn_shop"
    del sys.modules["drawn_shop"]


def test_a_graph_is_shown_in_all_forms(shop: str, nowhere: Cli, tmp_path: Path) -> None:
    specs = (f"{shop}:COUNTS", f"{shop}:MORE")
    text = nowhere("graph", "show", *specs).good().out
    assert "group counts\n  reads   clicks (String → Long): Count()\n" in text
    mermaid = nowhere("graph", "show", *specs, "--format", "mermaid").good().out
    assert mermaid.startswith("flowchart LR\n")
    assert mermaid.count('[("clicks<br>String → Long")]') == 1
    found = nowhere("graph", "show", *specs, "--json").good().json
    assert {node["name"] for node in found["nodes"]} >= {"group counts", "group more", "topic clicks"}
    assert found == nowhere("graph", "show", *specs, "--format", "json").good().json
    nowhere("graph", "show", *specs, "--format", "dot", "-o", "graph.dot").good()
    dot = nowhere("graph", "show", *specs, "--format", "dot").good().out
    assert (tmp_path / "graph.dot").read_text() == dot
    assert "digraph" in dot


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("none_of_ours:GROUP",), "cannot be imported"),
        (("drawn_shop:NONE",), "its groups and flows are COUNTS, MORE, FLOW"),
        (("drawn_shop:CLICKS",), "no Group and no Flow"),
        (("drawn_shop:COUNTS", "--format", "dot", "-o", "/none/of/ours.dot"), "cannot be written"),
        (("drawn_shop:COUNTS", "--json", "-o", "x.json"), "standard output"),
    ],
)
def test_an_invalid_graph_is_rejected(arguments: tuple[str, ...], said: str, shop: str, nowhere: Cli) -> None:
    nowhere("graph", "show", f"{shop}:COUNTS").good()
    ran = nowhere("graph", "show", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in " ".join(ran.err.split())


def test_a_group_named_twice_is_drawn_once(shop: str, nowhere: Cli) -> None:
    assert nowhere("graph", "show", f"{shop}:COUNTS", f"{shop}:COUNTS").good().out.count("group counts") == 1


def test_a_flow_is_drawn_with_all_of_its_groups(shop: str, nowhere: Cli) -> None:
    text = nowhere("graph", "show", f"{shop}:FLOW").good().out
    assert "group views\n" in text
    assert "group views-by-number\n" in text
