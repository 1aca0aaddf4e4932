"""The layout of the nodes and edges of the fleet's graph: side by side on a wide screen, top down on a narrow one."""

from functools import lru_cache
from typing import Any, Final

from streamtable_admin.graph_model import GraphEdge, GraphModel, GraphNode, NodeKind
from streamtable_admin.layout import LayoutStyle, Size, lay_out

NODES_MAX: Final = 300
EDGES_MAX: Final = 1000
"""A larger graph is listed, not drawn."""
WIDE: Final = LayoutStyle(
    layer_gap=72, node_gap=16, part_gap=34, margin=0, bend=8, label_letter=0, spread_ports=False
)
NARROW: Final = LayoutStyle(
    downwards=True,
    layer_gap=46,
    node_gap=12,
    part_gap=34,
    margin=0,
    bend=8,
    label_letter=0,
    spread_ports=False,
)
LABEL_LETTERS: Final = {"wide": 26, "narrow": 18}
"""The number of letters of a label that the page shows."""
_DETAIL_LETTERS: Final = 18
_LETTER: Final = 7.9
_SMALL_LETTER: Final = 6.4
_PAD: Final = 26
_HEIGHT: Final = 50.0


def layouts_of(model: GraphModel) -> dict[str, Any] | None:
    """Return a layout for wide and one for narrow screens; None if the graph is too large to draw."""
    if len(model.nodes) > NODES_MAX or len(model.edges) > EDGES_MAX:
        return None
    nodes = tuple((node.name, node.kind, node.label) for node in model.nodes.values())
    return _layouts(nodes, tuple(model.edges))


@lru_cache(maxsize=1)
def _layouts(nodes: tuple[tuple[str, NodeKind, str], ...], edges: tuple[GraphEdge, ...]) -> dict[str, Any]:
    model = GraphModel({name: GraphNode(name, kind, label) for name, kind, label in nodes}, list(edges))
    # A service that both emits records and shows their results stands at the beginning.
    emitters = {edge.source for edge in edges if edge.label == "emit"}
    against = {edge for edge in edges if edge.label == "view" and edge.target in emitters}
    return {
        name: _layout(model, style, LABEL_LETTERS[name], against)
        for name, style in (("wide", WIDE), ("narrow", NARROW))
    }


def _layout(model: GraphModel, style: LayoutStyle, letters: int, against: set[GraphEdge]) -> dict[str, Any]:
    sizes = {name: _size(node, letters) for name, node in model.nodes.items()}
    found = lay_out(model, sizes, style, against)
    boxes = [found.boxes[name] for name in model.nodes]
    return {
        "width": round(found.width),
        "height": round(found.height),
        "boxes": [
            {"x": round(box.x), "y": round(box.y), "width": round(box.width), "height": round(box.height)}
            for box in boxes
        ],
        "routes": [
            {
                "points": [(round(x), round(y)) for x, y in route.points],
                # Two nodes that are connected in both directions: the way back goes around them.
                "beside": route.back and len(route.points) == 2,  # noqa: PLR2004 - no bends
            }
            for route in found.routes
        ],
    }


def _size(node: GraphNode, letters: int) -> Size:
    width = max(min(len(node.label), letters) * _LETTER, _DETAIL_LETTERS * _SMALL_LETTER)
    return float(round(width + _PAD)), _HEIGHT
