// The graph as it is shown: a closed flow is one node, and topics that only one node uses are counted, not drawn, if there are many.

export const NODES_MAX = 110;
const ACTORS = new Set(["group", "service", "flow", "call"]);
export const isActor = (node) => ACTORS.has(node.kind);

const WORST = ["failed", "silent", "recovering", "starting", "ready"];

// The states of the processes of a flow; each process counts once, though it reports each of its groups.
function statesOf(groups, instances) {
  const worst = new Map();
  for (const each of instances) {
    if (!groups.has(each.group)) continue;
    const process = `${each.host} ${each.pid} ${each.instance}`;
    const known = worst.get(process);
    if (!known || WORST.indexOf(each.state) < WORST.indexOf(known)) worst.set(process, each.state);
  }
  const states = {};
  for (const state of worst.values()) states[state] = (states[state] ?? 0) + 1;
  return { states, instances: worst.size };
}

function flowNode(name, members, instances) {
  const groups = members.filter((node) => node.kind === "group");
  return {
    id: `flow ${name}`, kind: "flow", label: name, groups: groups.length, inner: members.length - groups.length,
    lag: groups.reduce((sum, node) => sum + (node.lag ?? 0), 0),
    ...statesOf(new Set(groups.map((node) => node.label)), instances),
  };
}

function joined(edges, standsFor) {
  const found = new Map();
  for (const edge of edges) {
    const [source, target] = [standsFor(edge.source), standsFor(edge.target)];
    if (source === target) continue;
    const key = `${source}\n${target}`;
    const one = found.get(key) ?? found.set(key, { key, source, target, hows: new Set(), rate: null }).get(key);
    one.hows.add(edge.how);
    if (edge.rate !== null) one.rate = (one.rate ?? 0) + edge.rate;
  }
  return [...found.values()];
}

// Hide the topics that only one node uses, and note their number there.
function withoutLeaves(nodes, edges) {
  const users = new Map();
  for (const { source, target } of edges) {
    users.set(source, (users.get(source) ?? new Set()).add(target));
    users.set(target, (users.get(target) ?? new Set()).add(source));
  }
  const leaves = new Set(nodes.filter((node) => !isActor(node) && (users.get(node.id)?.size ?? 0) < 2).map((node) => node.id));
  return {
    nodes: nodes.filter((node) => !leaves.has(node.id)).map((node) => {
      const hidden = [...users.get(node.id) ?? []].filter((id) => leaves.has(id)).length;
      return hidden ? { ...node, hidden } : node;
    }),
    edges: edges.filter(({ source, target }) => !leaves.has(source) && !leaves.has(target)),
    left: leaves.size,
  };
}

// Return the nodes and edges to show, and the number of topics that are not drawn. `open`: the names of the flows that are open.
export function folded(fleet, open, most = NODES_MAX) {
  const { nodes, edges } = fleet.graph;
  const flows = new Map();
  for (const node of nodes) if (node.flow) flows.set(node.flow, [...flows.get(node.flow) ?? [], node]);
  const standFor = new Map(nodes.map((node) => [node.id, node.flow && !open.has(node.flow) ? `flow ${node.flow}` : node.id]));
  const shown = [];
  const seen = new Set();
  for (const node of nodes) {
    if (!node.flow || open.has(node.flow)) shown.push(node);
    else if (!seen.has(node.flow)) shown.push(flowNode(node.flow, flows.get(node.flow), fleet.instances));
    if (node.flow) seen.add(node.flow);
  }
  const all = { nodes: shown, edges: joined(edges, (id) => standFor.get(id)), left: 0 };
  return shown.length > most ? withoutLeaves(all.nodes, all.edges) : all;
}

// The findings by the nodes that are shown: those of a group inside a closed flow are about the flow.
export function findingsByNode(fleet, open) {
  const flow = new Map(fleet.graph.nodes.filter((node) => node.flow && !open.has(node.flow)).map((node) => [node.id, `flow ${node.flow}`]));
  const found = new Map();
  for (const each of fleet.findings) {
    if (!each.node) continue;
    const id = flow.get(each.node) ?? each.node;
    found.set(id, [...found.get(id) ?? [], each]);
  }
  return found;
}
