"""A layered layout of graphs, left to right or top to bottom; connected parts stand below each other.

A node stands one layer behind the last one that leads to it. Edges that close a cycle are laid out in the opposite
direction. An edge over several layers bends in each of them; bends are ordered like nodes, so that few lines cross.
The same graph always gets the same layout.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from streamtable_admin.graph_model import GraphEdge, GraphModel, GraphNode

LETTER = 7.4
SMALL_LETTER = 6.2
LINE = 18.0
PORT = 12.0
PAD_X, PAD_Y = 14.0, 10.0
SWEEPS = 8

Point = tuple[float, float]
Size = tuple[float, float]
Way = tuple[str, str]
Columns = list[list[str]]


@dataclass(frozen=True, slots=True)
class LayoutStyle:
    """Distances and direction.

    Attributes:
        downwards: Layers follow each other from top to bottom instead of from left to right.
        layer_gap: Between layers, besides the labels of edges.
        node_gap: Between the nodes of a layer.
        part_gap: Between connected parts.
        margin: Around all.
        bend: The room that an edge takes in a layer that it crosses.
        label_letter: The width of a letter of an edge's label, where layers leave room for labels; 0 for none.
        spread_ports: Edges leave and reach a node at different points of its side; else all at the middle.
    """

    downwards: bool = False
    layer_gap: float = 60.0
    node_gap: float = 26.0
    part_gap: float = 26.0
    margin: float = 24.0
    bend: float = 0.0
    label_letter: float = SMALL_LETTER
    spread_ports: bool = True


@dataclass(frozen=True, slots=True)
class Box:
    """The place of a node in the drawing: its centre and its size."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Route:
    """The route of an edge: its start, its bends and its end. `back`: the edge runs against the direction of the drawing."""

    edge: GraphEdge
    points: tuple[Point, ...]
    back: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """Boxes by node and the routes of edges, in a plane of this size; y grows downwards."""

    boxes: Mapping[str, Box]
    routes: tuple[Route, ...]
    width: float
    height: float


def text_sizes(model: GraphModel) -> dict[str, Size]:
    """Return sizes that fit the text of the nodes, and the edges at their fuller side."""
    return {name: _text_size(node, model.edges) for name, node in model.nodes.items()}


def _text_size(node: GraphNode, edges: Iterable[GraphEdge]) -> Size:
    ends = [(edge.source, edge.target) for edge in edges]
    ports = max(sum(pair[side] == node.name for pair in ends) for side in (0, 1)) if ends else 0
    width = max(len(node.label) * LETTER, len(node.detail) * SMALL_LETTER) + 2 * PAD_X
    return width, max(LINE * (2 if node.detail else 1) + 2 * PAD_Y, PORT * (ports + 1))


def lay_out(
    model: GraphModel,
    sizes: Mapping[str, Size],
    style: LayoutStyle = LayoutStyle(),
    against: Collection[GraphEdge] = (),
) -> Layout:
    """Lay out a graph.

    Args:
        model: The graph.
        sizes: Width and height of each node.
        style: Distances and direction.
        against: Edges to lay out in the opposite direction in any case.
    """
    boxes: dict[str, Box] = {}
    routes: dict[GraphEdge, Route] = {}
    offset = width = style.margin
    for number, names in enumerate(_parts(model)):
        part = _Part(names, [edge for edge in model.edges if edge.source in names], sizes, style, against)
        offset += style.part_gap if number else 0.0
        boxes |= part.boxes(offset)
        routes |= part.routes(offset)
        offset += part.size[1]
        width = max(width, style.margin + part.size[0])
    return Layout(
        {name: boxes[name] for name in model.nodes},
        tuple(routes[edge] for edge in model.edges),
        width + style.margin,
        offset + style.margin,
    )


def _parts(model: GraphModel) -> list[dict[str, None]]:
    """Return the nodes of each connected part, the largest part first; in the order of the model."""
    after, before = _neighbours(model.nodes, [(edge.source, edge.target) for edge in model.edges])
    parts: list[dict[str, None]] = []
    seen: set[str] = set()
    for name in model.nodes:
        part, pending = set[str](), [name] if name not in seen else []
        while pending:
            each = pending.pop()
            if each not in part:
                part.add(each)
                pending += after[each] + before[each]
        seen |= part
        if part:
            parts.append({each: None for each in model.nodes if each in part})
    return sorted(parts, key=len, reverse=True)


class _Part:
    """A connected part. Coordinates are along the direction of the layers, and across it."""

    def __init__(
        self,
        names: Collection[str],
        edges: Sequence[GraphEdge],
        sizes: Mapping[str, Size],
        style: LayoutStyle,
        against: Collection[GraphEdge],
    ) -> None:
        self._names, self._edges, self._sizes, self._style = names, edges, sizes, style
        self._back = _back_edges(names, edges, against)
        ways = [(e.target, e.source) if e in self._back else (e.source, e.target) for e in edges]
        layer = _layers(names, ways)
        self._chains: list[list[str]] = []
        for number, (source, target) in enumerate(ways):
            bends = {f"bend {number} {level}": level for level in range(layer[source] + 1, layer[target])}
            layer |= bends
            self._chains.append([source, *bends, target])
        links = [link for chain in self._chains for link in pairwise(chain)]
        columns = _ordered(layer, links)
        self._along = self._place_along(columns, layer, ways)
        self._across = _place_across(columns, links, self._breadth, style.node_gap)
        low = min(self._across[name] - self._breadth(name) / 2 for name in layer)
        self._across = {name: at - low for name, at in self._across.items()}
        breadth = max(self._across[name] + self._breadth(name) / 2 for name in layer)
        depth = max(self._along[name] + self._depth(name) / 2 for name in names)
        self.size = (breadth, depth) if style.downwards else (depth, breadth)
        self._ports = self._placed_ports()

    def boxes(self, offset: float) -> dict[str, Box]:
        return {
            name: Box(*self._point((self._along[name], self._across[name]), offset), *self._sizes[name])
            for name in self._names
        }

    def routes(self, offset: float) -> dict[GraphEdge, Route]:
        found = {}
        for edge, chain, (start, end) in zip(self._edges, self._chains, self._ports, strict=True):
            ways = [start, *((self._along[bend], self._across[bend]) for bend in chain[1:-1]), end]
            back = edge in self._back
            points = [self._point(each, offset) for each in (reversed(ways) if back else ways)]
            found[edge] = Route(edge, tuple(points), back)
        return found

    def _point(self, at: Point, offset: float) -> Point:
        x, y = reversed(at) if self._style.downwards else at
        return x + self._style.margin, y + offset

    def _depth(self, name: str) -> float:
        return self._sizes[name][1 if self._style.downwards else 0] if name in self._sizes else 0.0

    def _breadth(self, name: str) -> float:
        return (
            self._sizes[name][0 if self._style.downwards else 1] if name in self._sizes else self._style.bend
        )

    def _place_along(
        self, columns: Columns, layer: Mapping[str, int], ways: Sequence[Way]
    ) -> dict[str, float]:
        """Place layers as deep as their deepest node, with room for the labels of the edges that arrive."""
        labels = [0.0] * (len(columns) + 1)
        for edge, (_, target) in zip(self._edges, ways, strict=True):
            labels[layer[target]] = max(labels[layer[target]], len(edge.label) * self._style.label_letter)
        found: dict[str, float] = {}
        at = 0.0
        for level, column in enumerate(columns):
            depth = max((self._depth(name) for name in column), default=0.0)
            at += (self._style.layer_gap + labels[level]) if level else 0.0
            found |= dict.fromkeys(column, at + depth / 2)
            at += depth
        return found

    def _placed_ports(self) -> list[tuple[Point, Point]]:
        """Return the start and the end of each edge, in the order of the other ends along the side of the node."""
        leaving: dict[str, list[tuple[float, int]]] = {}
        arriving: dict[str, list[tuple[float, int]]] = {}
        for number, chain in enumerate(self._chains):
            leaving.setdefault(chain[0], []).append((self._across[chain[1]], number))
            arriving.setdefault(chain[-1], []).append((self._across[chain[-2]], number))
        starts, ends = dict[int, Point](), dict[int, Point]()
        for sides, found, sign in ((leaving, starts, 1), (arriving, ends, -1)):
            for name, edges in sides.items():
                along = self._along[name] + sign * self._depth(name) / 2
                breadth = self._breadth(name) if self._style.spread_ports else 0.0
                for place, (_, number) in enumerate(sorted(edges), 1):
                    across = self._across[name] + breadth * (place / (len(edges) + 1) - 0.5)
                    found[number] = (along, across)
        return [(starts[number], ends[number]) for number in range(len(self._chains))]


def _back_edges(
    names: Collection[str], edges: Sequence[GraphEdge], against: Collection[GraphEdge]
) -> set[GraphEdge]:
    """Return the edges that close a cycle, found from nodes that no edge leads to, then from the rest."""
    found = {edge for edge in edges if edge in against}
    leaving: dict[str, list[GraphEdge]] = {name: [] for name in names}
    for edge in edges:
        if edge not in found:
            leaving[edge.source].append(edge)
    reached = {edge.target for edge in edges if edge not in found}
    done: set[str] = set()
    for start in sorted(names, key=lambda name: name in reached):
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


def _layers(names: Collection[str], ways: Sequence[Way]) -> dict[str, int]:
    """Return the layer of each node; one that no edge leads to stands right before its first target."""
    layer = dict.fromkeys(names, 0)
    for _ in names:  # one round for each layer, and never more if there is a cycle
        before = dict(layer)
        for source, target in ways:
            layer[target] = max(layer[target], layer[source] + 1)
        if layer == before:
            break
    after, leading = _neighbours(names, ways)
    for name in names:
        if after[name] and not leading[name]:
            layer[name] = min(layer[target] for target in after[name]) - 1
    return layer


def _neighbours(
    names: Iterable[str], ways: Iterable[Way]
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return the nodes after and before each node."""
    after: dict[str, list[str]] = {name: [] for name in names}
    before: dict[str, list[str]] = {name: [] for name in after}
    for source, target in ways:
        after[source].append(target)
        before[target].append(source)
    return after, before


def _ordered(layer: Mapping[str, int], links: Sequence[Way]) -> Columns:
    """Return the layers, each in the order with the fewest crossings that some sweeps find."""
    columns: Columns = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for name, level in layer.items():
        columns[level].append(name)
    after, before = _neighbours(layer, links)
    best, fewest = [list(column) for column in columns], _crossings(columns, links)
    place = {name: number for column in columns for number, name in enumerate(column)}
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        near = before if forward else after
        for column in columns if forward else reversed(columns):
            middle = {
                name: _mean([place[each] for each in near[name]]) if near[name] else float(place[name])
                for name in column
            }
            column.sort(key=middle.__getitem__)
            place |= {name: number for number, name in enumerate(column)}
        if (crossings := _crossings(columns, links)) < fewest:
            best, fewest = [list(column) for column in columns], crossings
    return best


def _crossings(columns: Columns, links: Sequence[Way]) -> int:
    place = {
        name: (level, number) for level, column in enumerate(columns) for number, name in enumerate(column)
    }
    between: dict[int, list[tuple[int, int]]] = {}
    for source, target in links:
        level, number = place[source]
        between.setdefault(level, []).append((number, place[target][1]))
    crossings = 0
    for ends in between.values():
        below: list[int] = []
        for _, end in sorted(ends):
            at = bisect_right(below, end)
            crossings += len(below) - at
            below.insert(at, end)
    return crossings


def _place_across(
    columns: Columns, links: Sequence[Way], breadth: Callable[[str], float], gap: float
) -> dict[str, float]:
    """Place each node towards the middle of its neighbours, as far as the other nodes of its layer leave room."""
    after, before = _neighbours((name for column in columns for name in column), links)
    near = {name: after[name] + before[name] for name in after}
    at: dict[str, float] = {}
    for column in columns:
        at |= _spread(column, breadth, gap, dict.fromkeys(column, 0.0))
    for sweep in range(2 * SWEEPS):
        for column in columns if sweep % 2 == 0 else reversed(columns):
            goals = {
                name: _mean([at[each] for each in near[name]]) if near[name] else at[name] for name in column
            }
            at |= _spread(column, breadth, gap, goals)
    return at


def _spread(
    column: Sequence[str], breadth: Callable[[str], float], gap: float, goals: Mapping[str, float]
) -> dict[str, float]:
    """Place a layer at its goals, in its order and without overlaps, shifted to the mean of the goals."""
    found: dict[str, float] = {}
    free = float("-inf")
    for name in column:
        found[name] = max(goals[name], free + breadth(name) / 2)
        free = found[name] + breadth(name) / 2 + gap
    shift = _mean([goals[name] - found[name] for name in column]) if column else 0.0
    return {name: at + shift for name, at in found.items()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
