"""Group graphs as pictures: what is in them, that nothing overlaps, and the command around them."""

import json
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from libs.streamtable_cli.tests.bench import Cli

from streamtable import Avro, Count, Group, Input, Json, Long, OnError, Output, Persist, Stream, String, Table
from streamtable.graph import Changes, Join, Lookup, Loop, Visit
from streamtable_cli.errors import Refused
from streamtable_cli.graphs import text_of
from streamtable_cli.layout import Layout, lay_out
from streamtable_cli.picture import Edge, Kind, Node, Picture, picture_of
from streamtable_cli.svg import svg_of

SVG = "{http://www.w3.org/2000/svg}"


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


def overlaps(layout: Layout) -> list[tuple[str, str]]:
    return [
        (one, other)
        for (one, a), (other, b) in combinations(layout.boxes.items(), 2)
        if abs(a.x - b.x) < (a.width + b.width) / 2 and abs(a.y - b.y) < (a.height + b.height) / 2
    ]


def test_groups_are_joined_through_the_topics_that_they_share() -> None:
    picture = picture_of(ALL)
    assert [name for name in picture.nodes if name == "topic clicks"] == ["topic clicks"]
    edges = {(edge.source, edge.target): edge.label for edge in picture.edges}
    assert edges["topic clicks", "group counts"] == "Count()"
    assert edges["topic clicks", "group orders"] == "handler"
    assert edges["topic placed", "group orders"] == "remember, on error dead letter"
    assert edges["group orders", "topic large"] == ""
    assert ("topic large", "group checks") in edges
    # A table that another group reads stays a table.
    assert picture.nodes["topic orders-table"].kind is Kind.TABLE
    assert ("topic orders-table", "group report") in edges
    assert picture.nodes["topic counts-table"].detail == "String → Avro long"


def test_joins_lookups_loops_and_visits_are_edges() -> None:
    picture = picture_of(JOINED)
    edges = {(edge.source, edge.target): edge.label for edge in picture.edges}
    assert edges["topic counts-table", "group status"] == "join, waits 0.5 s; changes: remember"
    assert edges["topic status-table", "group warned"] == "join"
    assert edges["topic names", "group status"] == "lookup"
    assert edges["topic status-loop", "group status"] == "remember, on error skip"
    assert edges["group status", "topic status-loop"] == "loop"
    assert edges["topic status-visits", "group status"] == "age, drop"
    kinds = {node.label: node.kind for node in picture.nodes.values()}
    assert (kinds["status-loop"], kinds["status-visits"], kinds["names"]) == ("loop", "visits", "table")
    assert kinds["counts-table"] is Kind.TABLE
    assert len(picture.edges) == len(set(picture.edges))


def test_groups_that_feed_one_another_are_laid_out_without_overlaps() -> None:
    picture = picture_of(JOINED, aside=True)
    layout = lay_out(picture)
    assert overlaps(layout) == []
    back = {(route.edge.source, route.edge.target) for route in layout.routes if route.back}
    assert len(back) == 2, "the loop, and what closes the circle"
    assert {each for pair in back for each in pair} >= {"topic status-loop", "group status"}
    ET.fromstring(svg_of(picture, layout))


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


def test_dead_letters_and_retries_are_drawn_when_asked_for() -> None:
    assert "topic counts-retry" not in picture_of([COUNTS]).nodes
    assert picture_of([COUNTS], aside=True).nodes["topic counts-retry"].kind is Kind.ASIDE


def test_two_groups_of_one_name_are_refused() -> None:
    with pytest.raises(Refused, match="'counts'"):
        picture_of([COUNTS, COUNTS])


def test_records_flow_from_left_to_right_except_where_they_come_back() -> None:
    layout = lay_out(picture_of(ALL))
    back = {(route.edge.source, route.edge.target) for route in layout.routes if route.back}
    assert back == {("topic corrected", "group orders")}
    for route in layout.routes:
        (x, _), *_, (end, _) = route.points
        assert (end < x) == route.back


def test_nothing_overlaps_and_all_is_inside() -> None:
    layout = lay_out(picture_of(ALL, aside=True))
    assert overlaps(layout) == []
    for box in layout.boxes.values():
        assert box.x - box.width / 2 > 0
        assert box.y - box.height / 2 > 0
        assert box.x + box.width / 2 < layout.width
        assert box.y + box.height / 2 < layout.height


NAMES = st.integers(0, 11).map(lambda number: f"n{number}")


@settings(deadline=None, database=None)
@given(st.lists(st.tuples(NAMES, NAMES).filter(lambda pair: pair[0] != pair[1]), max_size=25, unique=True))
def test_any_graph_is_laid_out_without_overlaps(pairs: list[tuple[str, str]]) -> None:
    names = sorted({name for pair in pairs for name in pair})
    nodes = {name: Node(name, Kind.STREAM, name * 3, "x") for name in names}
    picture = Picture(nodes, tuple(Edge(source, target, "does") for source, target in pairs))
    layout = lay_out(picture)
    assert overlaps(layout) == []
    assert len(layout.routes) == len(pairs)
    assert lay_out(picture) == layout
    ET.fromstring(svg_of(picture, layout))


def test_a_picture_stands_alone_and_says_everything() -> None:
    picture = picture_of(ALL, aside=True)
    text = svg_of(picture, lay_out(picture))
    root = ET.fromstring(text)
    shown = {each.text for each in root.iter(f"{SVG}text")}
    assert {node.label for node in picture.nodes.values()} <= shown
    assert {edge.label for edge in picture.edges if edge.label} <= shown
    assert {each.tag.removeprefix(SVG) for each in root.iter()} == {
        "svg", "title", "defs", "marker", "path", "rect", "text",
    }  # fmt: skip
    assert "href" not in text
    assert "url(http" not in text


def test_names_are_text_not_markup() -> None:
    node = Node("n", Kind.GROUP, '<script>&"', "a<b")
    picture = Picture({"n": node}, ())
    root = ET.fromstring(svg_of(picture, lay_out(picture)))
    assert '<script>&"' in {each.text for each in root.iter(f"{SVG}text")}


# ---- the command -----------------------------------------------------------------------------------------------------------

SHOP = """
from streamtable import *
CLICKS = Stream("clicks", String(), Long())
COUNTS = Group("counts", Input(CLICKS, aggregate=Count()), Persist(Long()), )
MORE = Group("more", Input(CLICKS, aggregate=Count()), Persist(Long()))
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
    nowhere("graph", "show", *specs, "--format", "svg", "-o", "picture.svg").good()
    svg = nowhere("graph", "show", *specs, "--format", "svg").good().out
    assert (tmp_path / "picture.svg").read_text() == svg
    assert json.dumps(svg)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("none_of_ours:GROUP",), "cannot be imported"),
        (("drawn_shop:NONE",), "its groups are COUNTS, MORE"),
        (("drawn_shop:CLICKS",), "no streamtable.Group"),
        (("drawn_shop:COUNTS", "--format", "svg", "-o", "/none/of/ours.svg"), "cannot be written"),
        (("drawn_shop:COUNTS", "--json", "-o", "x.json"), "standard output"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    arguments: tuple[str, ...], said: str, shop: str, nowhere: Cli
) -> None:
    nowhere("graph", "show", f"{shop}:COUNTS").good()
    ran = nowhere("graph", "show", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in " ".join(ran.err.split())


def test_a_group_named_twice_is_drawn_once(shop: str, nowhere: Cli) -> None:
    assert nowhere("graph", "show", f"{shop}:COUNTS", f"{shop}:COUNTS").good().out.count("group counts") == 1
