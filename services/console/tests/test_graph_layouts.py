from typing import Any

from console.graph_layouts import NODES_MAX, layouts_of
from streamtable_admin.graph_model import GraphModel, NodeKind


def shop() -> GraphModel:
    """An emitter that also shows the table that becomes of its clicks."""
    model = GraphModel()
    clicks, table = model.topic("clicks", NodeKind.STREAM), model.topic("count-table", NodeKind.TABLE)
    group, service = model.actor(NodeKind.GROUP, "count"), model.actor(NodeKind.SERVICE, "shop web")
    for source, target, how in (
        (service, clicks, "emit"),
        (clicks, group, "stream"),
        (group, table, "table"),
        (table, service, "view"),
    ):
        model.edge(source, target, how)
    return model


def boxes(model: GraphModel, name: str) -> dict[str, Any]:
    layouts = layouts_of(model)
    assert layouts is not None
    return dict(zip(model.nodes, layouts[name]["boxes"], strict=True))


def test_records_flow_to_the_right_on_a_wide_screen_and_down_on_a_narrow_one() -> None:
    order = ["service shop web", "topic clicks", "group count", "topic count-table"]
    for name, axis in (("wide", "x"), ("narrow", "y")):
        found = boxes(shop(), name)
        assert sorted(found, key=lambda node: found[node][axis]) == order


def test_an_edge_back_is_the_last_and_goes_against_the_direction() -> None:
    layouts = layouts_of(shop())
    assert layouts is not None
    *onward, back = layouts["wide"]["routes"]
    assert all(route["points"][0][0] < route["points"][-1][0] for route in onward)
    assert back["points"][0][0] > back["points"][-1][0]


def test_two_nodes_that_are_joined_both_ways_have_one_edge_beside_them() -> None:
    model = GraphModel()
    group, loop = model.actor(NodeKind.GROUP, "g"), model.topic("g-loop", NodeKind.LOOP)
    model.edge(loop, group, "loop")
    model.edge(group, loop, "loop")
    layouts = layouts_of(model)
    assert layouts is not None
    assert sorted(route["beside"] for route in layouts["wide"]["routes"]) == [False, True]


def test_unconnected_parts_stand_below_each_other_on_any_screen() -> None:
    model = shop()
    model.topic("alone", NodeKind.STREAM)
    for name in ("wide", "narrow"):
        found = boxes(model, name)
        alone = found.pop("topic alone")
        assert all(box["y"] + box["height"] / 2 < alone["y"] - alone["height"] / 2 for box in found.values())


def test_a_graph_that_is_too_large_is_not_laid_out() -> None:
    model = GraphModel()
    for number in range(NODES_MAX + 1):
        model.topic(f"t{number}", NodeKind.STREAM)
    assert layouts_of(model) is None
