"""A laid-out graph as a self-contained SVG: no fonts, scripts or styles from elsewhere."""

from collections.abc import Iterator
from itertools import pairwise
from xml.sax.saxutils import escape

from streamtable_admin.graph_model import GraphModel, GraphNode, NodeKind
from streamtable_admin.layout import LINE, SMALL_LETTER, Box, Layout, Point, Route

FONT = "ui-sans-serif, system-ui, 'Helvetica Neue', Arial, sans-serif"
COLOURS = {
    NodeKind.STREAM: ("#e8f1fb", "#5b8fc7", "#12304d"),
    NodeKind.GROUP: ("#1f4e79", "#1f4e79", "#ffffff"),
    NodeKind.SERVICE: ("#ffffff", "#1f4e79", "#12304d"),
    NodeKind.TABLE: ("#fdf3dc", "#c9962c", "#4d3a0d"),
    NodeKind.LOOP: ("#e9f5ea", "#5a9e62", "#1c4222"),
    NodeKind.VISITS: ("#f2ecf9", "#8b6bb8", "#38225a"),
    NodeKind.ASIDE: ("#f3f3f3", "#9a9a9a", "#444444"),
}
"""Fill, stroke and text of the kinds of nodes."""
LINE_COLOUR = "#6b7785"
_LID = 7.0


def svg_of(picture: GraphModel, layout: Layout) -> str:
    """Return the document. Streams are rounded, groups dark, tables cylinders, dead letters and retries grey.

    Loops are green, visits violet.
    """
    width, height = round(layout.width), round(layout.height)
    title = ", ".join(node.label for node in picture.nodes.values() if node.kind is NodeKind.GROUP)
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                f'viewBox="0 0 {width} {height}" role="img" font-family="{FONT}">'
            ),
            f"<title>{escape(title)}</title>",
            (
                '<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
                f'orient="auto"><path d="M0 0L10 5L0 10z" fill="{LINE_COLOUR}"/></marker></defs>'
            ),
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
            *(_path(route) for route in layout.routes),
            *(part for name, node in picture.nodes.items() for part in _node(node, layout.boxes[name])),
            *(part for route in layout.routes for part in _label(route)),
            "</svg>",
            "",
        ]
    )


def _node(node: GraphNode, box: Box) -> Iterator[str]:
    left, top = box.x - box.width / 2, box.y - box.height / 2
    fill, stroke, text = COLOURS[node.kind]
    paint = f'fill="{fill}" stroke="{stroke}" stroke-width="1.5"'
    if node.kind is NodeKind.TABLE:
        bottom, half = top + box.height, box.width / 2
        yield (
            f'<path d="M{left:.1f} {top:.1f}a{half:.1f} {_LID} 0 0 1 {box.width:.1f} 0V{bottom:.1f}'
            f'a{half:.1f} {_LID} 0 0 1 -{box.width:.1f} 0z" {paint}/>'
        )
        yield (
            f'<path d="M{left:.1f} {top:.1f}a{half:.1f} {_LID} 0 0 0 {box.width:.1f} 0" fill="none" '
            f'stroke="{stroke}" stroke-width="1.5"/>'
        )
    else:
        radius = 6 if node.kind is NodeKind.GROUP else box.height / 2
        dashed = ' stroke-dasharray="4 3"' if node.kind is NodeKind.ASIDE else ""
        yield (
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" '
            f'rx="{radius:.1f}" {paint}{dashed}/>'
        )
    down = LINE / 2 if node.detail else 0.0
    y = box.y + (_LID / 2 if node.kind is NodeKind.TABLE else 0.0)
    weight = ' font-weight="600"' if node.kind is NodeKind.GROUP else ""
    yield (
        f'<text x="{box.x:.1f}" y="{y - down + 4.5:.1f}" font-size="13" text-anchor="middle" fill="{text}"{weight}>'
        f"{escape(node.label)}</text>"
    )
    if node.detail:
        yield (
            f'<text x="{box.x:.1f}" y="{y + down + 3.5:.1f}" font-size="11" text-anchor="middle" '
            f'fill="{text}" opacity="0.75">{escape(node.detail)}</text>'
        )


def _path(route: Route) -> str:
    (x, y), *_ = route.points
    way = f"M{x:.1f} {y:.1f}"
    for a, b in pairwise(route.points):
        way += "C" + " ".join(f"{px:.1f} {py:.1f}" for px, py in (*_handles(a, b), b))
    dashed = ' stroke-dasharray="6 4"' if route.back else ""
    return f'<path d="{way}" fill="none" stroke="{LINE_COLOUR}" stroke-width="1.5"{dashed} marker-end="url(#arrow)"/>'


def _handles(a: Point, b: Point) -> tuple[Point, Point]:
    """Return the control points of an edge, which is level at both ends."""
    middle = (a[0] + b[0]) / 2
    return (middle, a[1]), (middle, b[1])


def _label(route: Route) -> Iterator[str]:
    """Yield the label of an edge, drawn over its line in the gap before the node on the right."""
    if not route.edge.label:
        return
    a, b = route.points[:2] if route.back else route.points[-2:]
    x, y = (a[0] + b[0]) / 2, (a[1] + b[1]) / 2
    width = len(route.edge.label) * SMALL_LETTER + 4
    yield f'<rect x="{x - width / 2:.1f}" y="{y - 7:.1f}" width="{width:.1f}" height="14" fill="#ffffff" opacity="0.9"/>'
    yield (
        f'<text x="{x:.1f}" y="{y + 3.5:.1f}" font-size="11" text-anchor="middle" fill="#3c4650">'
        f"{escape(route.edge.label)}</text>"
    )
