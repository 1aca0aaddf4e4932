// The graph as a list: each group, flow and service with what it reads and writes. It is the graph of small screens.

import { h, rate, show } from "./dom.js";
import { findingsByNode, folded, isActor } from "./fold.js";
import { detail, health, target, trouble } from "./graph.js";

const HOWS = { stream: "", table: "table", state: "table", emit: "", call: "", view: "shows", query: "asks", join: "joins", lookup: "looks up" };

function places(title, edges, other, nodes) {
  if (!edges.length) return null;
  return h("div", { class: "ends" }, h("h4", {}, title), h("ul", {}, edges.map((edge) => {
    const node = nodes.get(other(edge));
    const how = [...edge.hows].map((each) => HOWS[each] ?? each).filter(Boolean).join(", ");
    const speed = edge.rate >= 0.05 ? rate(edge.rate) : "";
    return h("li", { "data-key": edge.key }, h("a", { href: target(node) }, node.label),
      h("span", { class: "small" }, [how, speed].filter(Boolean).map((text) => ` ${text}`)));
  })));
}

function actor(node, edges, nodes, findings, toggle, open) {
  const wrong = trouble(findings);
  const flow = node.kind === "flow" ? node.label : node.flow;
  return h("li", { class: `actor ${health(node, findings)}`, "data-key": node.id },
    h("h3", {}, node.kind === "flow" ? node.label : h("a", { href: target(node) }, node.label), h("span", { class: "small" }, ` ${node.kind} · ${detail(node)}`)),
    wrong && h("p", {}, h("a", { class: "trouble", href: `#/fleet/${encodeURIComponent(findings[0].node)}` }, wrong)),
    places("Reads", edges.filter((edge) => edge.target === node.id), (edge) => edge.source, nodes),
    places("Writes", edges.filter((edge) => edge.source === node.id && !edge.hows.has("call") && !edge.hows.has("query")), (edge) => edge.target, nodes),
    places("Answers", edges.filter((edge) => edge.source === node.id && edge.hows.has("query")), (edge) => edge.target, nodes),
    places("Calls", edges.filter((edge) => edge.source === node.id && edge.hows.has("call")), (edge) => edge.target, nodes),
    flow && h("p", {}, h("button", { type: "button", class: "plain", "data-flow": flow, "aria-expanded": String(open.has(flow)), onclick: toggle }, open.has(flow) ? `Close the flow ${flow}` : `Open the flow: ${node.groups} ${node.groups === 1 ? "group" : "groups"}, ${node.inner} inner topics`)));
}

export function showOutline(place, fleet, open, redraw) {
  const { nodes, edges } = folded(fleet, open, Infinity);
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const wrong = findingsByNode(fleet, open);
  const toggle = (event) => {
    const name = event.currentTarget.dataset.flow;
    if (!open.delete(name)) open.add(name);
    redraw();
  };
  const rank = { bad: 0, warned: 1, busy: 2 };
  const actors = nodes.filter(isActor).map((node) => [node, wrong.get(node.id) ?? []]);
  actors.sort(([one, its], [other, others]) => (rank[health(one, its)] ?? 3) - (rank[health(other, others)] ?? 3));
  show(place, h("ul", { class: "outline" }, actors.map(([node, findings]) => actor(node, edges, byId, findings, toggle, open))));
}
