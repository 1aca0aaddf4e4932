// Where the nodes and edges of the graph are drawn, by dagre. The same graph gets the same layout, which is kept until it changes.

import { graphlib, layout as place } from "./vendor/dagre.js";

const KEPT = 8;
const known = new Map();

const nameOf = (nodes, edges) => JSON.stringify([nodes.map(({ node, width, height }) => [node.id, node.flow, width, height]), edges.map((edge) => edge.key)]);

// `sized`: nodes with their width and height; `open`: the flows that are drawn as a frame around their nodes.
export function laidOut(sized, edges, open) {
  const name = nameOf(sized, edges);
  const found = known.get(name) ?? computed(sized, edges, open);
  known.delete(name);
  known.set(name, found);
  if (known.size > KEPT) known.delete(known.keys().next().value);
  return found;
}

function computed(sized, edges, open) {
  const graph = new graphlib.Graph({ compound: true });
  graph.setGraph({ rankdir: "LR", nodesep: 18, ranksep: 70, edgesep: 12, marginx: 12, marginy: 12 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const { node, width, height } of sized) {
    graph.setNode(node.id, { width, height });
    if (!node.flow || !open.has(node.flow)) continue;
    const frame = `flow ${node.flow}`;
    if (!graph.hasNode(frame)) graph.setNode(frame, {});
    graph.setParent(node.id, frame);
  }
  for (const { source, target } of edges) graph.setEdge(source, target);
  place(graph);
  const { width, height } = graph.graph();
  const frames = new Map(graph.nodes().filter((id) => graph.children(id).length).map((id) => [id, graph.node(id)]));
  return {
    width, height, frames,
    boxes: new Map(sized.map(({ node }) => [node.id, graph.node(node.id)])),
    routes: new Map(edges.map((edge) => [edge.key, graph.edge(edge.source, edge.target).points])),
  };
}
