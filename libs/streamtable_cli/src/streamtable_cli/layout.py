"""A small layered layout, left to right: layers by the longest way, order by the middle of the neighbours, few lines.

Edges that would go back are laid out the other way round, so that what remains has no cycle. An edge over several
layers goes through a bend in each of them, which takes part in the order like a node.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from streamtable_cli.picture import Edge, Node, Picture

LETTER = 7.4
SMALL_LETTER = 6.2
LINE = 18.0
PORT = 12.0
PAD_X, PAD_Y = 14.0, 10.0
GAP_X, GAP_Y = 60.0, 26.0
MARGIN = 24.0
SWEEPS = 8

Point = tuple[float, float]


@dataclass(slots=True)
class Box:
    """Where a node is: its middle, and its size."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Route:
    """The way of an edge: where it leaves, its bends, where it arrives. `back`: it goes from right to left."""

    edge: Edge
    points: tuple[Point, ...]
    back: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """A picture laid out on a plane of this size; y grows downwards."""

    boxes: Mapping[str, Box]
    routes: tuple[Route, ...]
    width: float
    height: float


def lay_out(picture: Picture) -> Layout:
    """Lay a picture out. The same picture always comes out the same."""
    back = _back_edges(picture)
    ways = [(e.target, e.source) if e in back else (e.source, e.target) for e in picture.edges]
    layer = _layers(list(picture.nodes), ways)
    boxes = {name: _box(node, ways) for name, node in picture.nodes.items()}
    chains: list[list[str]] = []
    for number, (source, target) in enumerate(ways):
        bends = [f"bend {number} {level}" for level in range(layer[source] + 1, layer[target])]
        for level, bend in enumerate(bends, layer[source] + 1):
            layer[bend] = level
            boxes[bend] = Box(0, 0, 0, 0)
        chains.append([source, *bends, target])
    links = [link for chain in chains for link in pairwise(chain)]
    columns = _ordered(layer, links)
    _place_x(columns, boxes, picture, ways, layer)
    _place_y(columns, boxes, links)
    ports = _ports(chains, boxes)
    routes = []
    for number, (edge, chain) in enumerate(zip(picture.edges, chains, strict=True)):
        points = [
            ports[number][0],
            *((boxes[bend].x, boxes[bend].y) for bend in chain[1:-1]),
            ports[number][1],
        ]
        routes.append(Route(edge, tuple(reversed(points) if edge in back else points), edge in back))
    width = max((box.x + box.width / 2 for box in boxes.values()), default=0) + MARGIN
    height = max((box.y + box.height / 2 for box in boxes.values()), default=0) + MARGIN
    return Layout({name: boxes[name] for name in picture.nodes}, tuple(routes), width, height)


def _box(node: Node, ways: Sequence[tuple[str, str]]) -> Box:
    """As large as its text, and as high as the edges on its fuller side need."""
    ports = max(
        sum(source == node.name for source, _ in ways), sum(target == node.name for _, target in ways)
    )
    width = max(len(node.label) * LETTER, len(node.detail) * SMALL_LETTER) + 2 * PAD_X
    return Box(0, 0, width, max(LINE * (2 if node.detail else 1) + 2 * PAD_Y, PORT * (ports + 1)))


def _back_edges(picture: Picture) -> set[Edge]:
    """Those that close a cycle, found going down from nodes that nothing leads to, then from the rest."""
    leaving: dict[str, list[Edge]] = {name: [] for name in picture.nodes}
    for edge in picture.edges:
        leaving[edge.source].append(edge)
    led_to = {edge.target for edge in picture.edges}
    found: set[Edge] = set()
    done: set[str] = set()
    for start in sorted(picture.nodes, key=lambda name: name in led_to):
        path: list[tuple[str, int]] = [(start, 0)] if start not in done else []
        on_path = {name for name, _ in path}
        while path:
            name, number = path.pop()
            if number < len(leaving[name]):
                path.append((name, number + 1))
                edge = leaving[name][number]
                if edge.target in on_path:
                    found.add(edge)
                elif edge.target not in done:
                    path.append((edge.target, 0))
                    on_path.add(edge.target)
            else:
                done.add(name)
                on_path.discard(name)
    return found


def _layers(nodes: Sequence[str], ways: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Each node one layer behind the last that leads to it; a node that nothing leads to, right before its first."""
    layer = dict.fromkeys(nodes, 0)
    for _ in nodes:
        for source, target in ways:
            layer[target] = max(layer[target], layer[source] + 1)
    led_to = {target for _, target in ways}
    for name in nodes:
        targets = [layer[target] for source, target in ways if source == name]
        if name not in led_to and targets:
            layer[name] = min(targets) - 1
    return layer


def _ordered(layer: Mapping[str, int], links: Sequence[tuple[str, str]]) -> list[list[str]]:
    """The layers from left to right, each from top to bottom, in the best order that some sweeps find."""
    columns: list[list[str]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for name, level in layer.items():
        columns[level].append(name)
    best, fewest = [list(column) for column in columns], _crossings(columns, links)
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        for column in columns if forward else reversed(columns):
            place = {name: number for each in columns for number, name in enumerate(each)}
            near: dict[str, list[int]] = {name: [] for name in column}
            for source, target in links:
                if forward and target in near:
                    near[target].append(place[source])
                if not forward and source in near:
                    near[source].append(place[target])
            middle = {name: fmean(near[name]) if near[name] else float(place[name]) for name in column}
            column.sort(key=middle.__getitem__)
        if (crossings := _crossings(columns, links)) < fewest:
            best, fewest = [list(column) for column in columns], crossings
    return best


def _crossings(columns: Sequence[Sequence[str]], links: Sequence[tuple[str, str]]) -> int:
    place = {
        name: (level, number) for level, column in enumerate(columns) for number, name in enumerate(column)
    }
    ends = sorted((place[source], place[target]) for source, target in links)
    return sum(
        a[0][0] == b[0][0] and (a[0][1] - b[0][1]) * (a[1][1] - b[1][1]) < 0
        for number, a in enumerate(ends)
        for b in ends[number + 1 :]
    )


def _place_x(
    columns: Sequence[Sequence[str]],
    boxes: Mapping[str, Box],
    picture: Picture,
    ways: Sequence[tuple[str, str]],
    layer: Mapping[str, int],
) -> None:
    """Columns as wide as their widest node; between them room for the labels of the edges that arrive."""
    labels = [0.0] * (len(columns) + 1)
    for edge, (_, target) in zip(picture.edges, ways, strict=True):
        labels[layer[target]] = max(labels[layer[target]], len(edge.label) * SMALL_LETTER)
    x = MARGIN
    for level, column in enumerate(columns):
        width = max(boxes[name].width for name in column)
        x += (GAP_X + labels[level]) if level else 0.0
        for name in column:
            boxes[name].x = x + width / 2
        x += width


def _place_y(
    columns: Sequence[Sequence[str]], boxes: Mapping[str, Box], links: Sequence[tuple[str, str]]
) -> None:
    """Each node towards the middle of its neighbours, as far as those above and below leave room."""
    for column in columns:
        _spread(column, boxes, dict.fromkeys(column, 0.0))
    for sweep in range(2 * SWEEPS):
        for column in columns if sweep % 2 == 0 else reversed(columns):
            wanted = {}
            for name in column:
                near = [boxes[b if a == name else a].y for a, b in links if name in (a, b)]
                wanted[name] = fmean(near) if near else boxes[name].y
            _spread(column, boxes, wanted)
    top = min((box.y - box.height / 2 for box in boxes.values()), default=0.0)
    for box in boxes.values():
        box.y += MARGIN - top


def _spread(column: Sequence[str], boxes: Mapping[str, Box], wanted: Mapping[str, float]) -> None:
    """Put a column where it is wanted, in its order and without overlaps; the whole is kept where most want it."""
    y = float("-inf")
    for name in column:
        box = boxes[name]
        box.y = max(wanted[name], y + box.height / 2)
        y = box.y + box.height / 2 + GAP_Y
    shift = fmean(wanted[name] - boxes[name].y for name in column)
    for name in column:
        boxes[name].y += shift


def _ports(chains: Sequence[Sequence[str]], boxes: Mapping[str, Box]) -> list[tuple[Point, Point]]:
    """Where each edge leaves and arrives: spread over the side of the node, in the order of the other ends."""
    leaving: dict[str, list[tuple[float, int]]] = {}
    arriving: dict[str, list[tuple[float, int]]] = {}
    for number, chain in enumerate(chains):
        leaving.setdefault(chain[0], []).append((boxes[chain[1]].y, number))
        arriving.setdefault(chain[-1], []).append((boxes[chain[-2]].y, number))
    starts, ends = dict[int, Point](), dict[int, Point]()
    for sides, found, sign in ((leaving, starts, 1), (arriving, ends, -1)):
        for name, edges in sides.items():
            box = boxes[name]
            for place, (_, number) in enumerate(sorted(edges), 1):
                y = box.y - box.height / 2 + box.height * place / (len(edges) + 1)
                found[number] = (box.x + sign * box.width / 2, y)
    return [(starts[number], ends[number]) for number in range(len(chains))]
