// The graph as a picture: groups, flows and services, and the topics and tables between them. Problems are said in the box.

import { compact, h, rate, s, show, span } from "./dom.js";
import { findingsByNode, folded, isActor } from "./fold.js";
import { laidOut } from "./layout.js";

const [LETTER, SMALL, LINE, PAD] = [7.9, 6.3, 16, 14];
const [LABEL_MAX, TEXT_MAX, WIDTH_MIN] = [30, 32, 120];
const DRAWN_MAX = 160;
const SHAPES = { group: 8, flow: 12, service: 26, call: 18, stream: 0, table: 0, loop: 0, visits: 0 };

// Names break at their separators, so that none is cut.
export function lines(text, most) {
  const found = [""];
  for (const part of text.split(/(?<=[-._ ])/)) {
    if (found.at(-1) && (found.at(-1) + part).trimEnd().length > most) found.push("");
    found[found.length - 1] += part;
  }
  return found.map((line) => line.trim());
}

export function detail(node) {
  if (node.kind === "call") return `call · ${node.pending ? `${compact(node.pending)} pending · oldest ${span(1000 * node.oldest_seconds)}` : "none pending"}`;
  if (isActor(node)) {
    const states = Object.entries(node.states ?? {}).sort(([one], [other]) => (one === "ready") - (other === "ready"));
    const said = [states.map(([name, count]) => `${count} ${name}`).join(", ")];
    if (node.lag > 0) said.push(`lag ${compact(node.lag)}`);
    if (node.groups > 1) said.push(`${node.groups} groups`);
    if (node.hidden) said.push(`${node.hidden} more ${node.hidden === 1 ? "topic" : "topics"}`);
    return said.join(" · ");
  }
  const known = node.records === undefined ? node.detail : `${compact(node.records)} records`;
  return node.kind in SHAPES ? known : [node.kind, known].filter(Boolean).join(" · ");
}

export function health(node, findings) {
  const states = node.states ?? {};
  if (states.failed || states.silent || findings.some((each) => each.level === "problem")) return "bad";
  if (findings.length) return "warned";
  return states.recovering || states.starting ? "busy" : isActor(node) ? "good" : "";
}

// The trouble of a node in a few words.
export function trouble(findings) {
  if (!findings.length) return "";
  const more = findings.length > 1 ? `, and ${findings.length - 1} more` : "";
  return findings[0].fact.replace(/ \(process .*$/, "").replace(/, and (did not report a stop|so are its answers)$/, "") + more;
}

export function target(node) {
  if (isActor(node)) return `#/instances/${encodeURIComponent(node.group ?? node.label)}`;
  return `#/${node.kind === "table" ? "tables" : "topics"}/${encodeURIComponent(node.label)}`;
}

// Details change all the time, so their length does not count for the size: it gets room for what they usually say.
function sized(node, findings) {
  const label = lines(node.label, LABEL_MAX);
  const problem = lines(trouble(findings), TEXT_MAX).filter(Boolean);
  const letters = Math.max(...problem.map((line) => line.length * SMALL), ...label.map((line) => line.length * LETTER), isActor(node) ? 24 * SMALL : 14 * SMALL);
  const top = isActor(node) ? 9 : 15; // below the lid
  const height = (label.length + 1 + problem.length) * LINE + top + 9 + (problem.length ? 4 : 0);
  return { node, label, problem, findings, top, width: Math.max(WIDTH_MIN, Math.round(letters / 12) * 12 + 2 * PAD), height };
}

function body(node, { x, y, width, height }) {
  const [left, top] = [x - width / 2, y - height / 2];
  if (isActor(node)) {
    const rect = (shift) => s("rect", { class: "body", x: left + shift, y: top - shift, width, height, rx: SHAPES[node.kind] });
    return node.kind === "flow" ? [rect(5), rect(0)] : rect(0);
  }
  const [bow, right, bottom] = [6, left + width, top + height]; // a drum: what holds records
  return [
    s("path", { class: "body", d: `M${left} ${top + bow}V${bottom - bow}C${left} ${bottom + bow / 2} ${right} ${bottom + bow / 2} ${right} ${bottom - bow}V${top + bow}C${right} ${top - bow / 2} ${left} ${top - bow / 2} ${left} ${top + bow}Z` }),
    s("path", { class: "lid", d: `M${left} ${top + bow}C${left} ${top + 2.5 * bow} ${right} ${top + 2.5 * bow} ${right} ${top + bow}` })];
}

const byKey = (act) => (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(event); } };

function drawNode({ node, label, problem, findings, top, height }, box, toggle) {
  const text = (line, index, name) => s("text", { class: name, x: box.x, y: box.y - height / 2 + top + (index + 1) * LINE - 4, "text-anchor": "middle" }, line);
  const said = detail(node);
  const content = [
    s("title", {}, `${node.kind} ${node.label}: ${said}`), body(node, box),
    label.map((line, index) => text(line, index, "label")), text(said, label.length, "detail")];
  const link = node.kind === "flow"
    ? s("g", { class: "control", role: "button", tabindex: "0", "aria-expanded": "false", "aria-label": `Open the flow ${node.label}: ${said}`, "data-flow": node.label, onclick: toggle, onkeydown: byKey(toggle) }, content)
    : s("a", { class: "control", href: target(node) }, content);
  const why = problem.length > 0 && s("a", { class: "why", href: `#/fleet/${encodeURIComponent(findings[0].node)}` },
    s("title", {}, "What it means, and what to do"), problem.map((line, index) => text(line, label.length + 1.3 + index, "trouble")));
  return s("g", { class: `node ${node.kind} ${health(node, findings)}`, "data-key": node.id }, link, why);
}

function drawFrame(id, { x, y, width, height }, toggle) {
  const name = id.slice("flow ".length);
  const [left, top] = [x - width / 2, y - height / 2];
  return s("g", { class: "frame", "data-key": id },
    s("rect", { x: left, y: top, width, height, rx: 12 }),
    s("g", { class: "control", role: "button", tabindex: "0", "aria-expanded": "true", "data-flow": name, "aria-label": `Close the flow ${name}`, onclick: toggle, onkeydown: byKey(toggle) },
      s("rect", { class: "handle", x: left + 8, y: top + 3, width: (name.length + 2) * LETTER + 12, height: 20, rx: 6 }),
      s("text", { class: "label", x: left + 14, y: top + 17 }, `− ${name}`)));
}

// Through the points, level at both ends.
function curve(points) {
  const [start, ...rest] = points;
  const end = rest.pop();
  let path = `M${start.x} ${start.y}`;
  let from = start;
  rest.forEach((point, index) => {
    const next = rest[index + 1] ?? end;
    const to = index + 1 < rest.length ? { x: (point.x + next.x) / 2, y: (point.y + next.y) / 2 } : end;
    path += `Q${point.x} ${point.y} ${to.x} ${to.y}`;
    from = to;
  });
  return from === end ? path : `${path}L${end.x} ${end.y}`;
}

// A thousand times the records is four times the width.
export const thickness = (speed) => (speed >= 0.05 ? Math.min(6, 1.4 + 1.1 * Math.log10(1 + speed)) : 1.2);

function drawEdge(edge, points) {
  const text = edge.rate >= 0.05 ? rate(edge.rate) : "";
  const { x, y } = points[Math.floor(points.length / 2)];
  const how = [...edge.hows][0].replace(" ", "-");
  return s("g", { "data-key": edge.key },
    s("path", { class: `arrow ${how} ${text && "moving"}`, d: curve(points), "stroke-width": thickness(edge.rate ?? 0).toFixed(1), "marker-end": `url(#${text ? "tip-moving" : "tip"})` }),
    text && s("text", { class: "rate", x, y: y - 6, "text-anchor": "middle" }, text));
}

const tip = (id) => s("marker", { id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, orient: "auto", markerUnits: "userSpaceOnUse" }, s("path", { class: id, d: "M0 0L8 4L0 8Z" }));

// Draw the graph into a place. `open` holds the names of open flows; `redraw` is called when it has changed.
export function showGraph(place, fleet, open, redraw) {
  const { nodes, edges, left } = folded(fleet, open);
  if (nodes.length > DRAWN_MAX) {
    show(place, h("p", { class: "empty" }, `The graph has ${nodes.length} nodes, too many for a picture: the list below has all of them.`));
    return;
  }
  const wrong = findingsByNode(fleet, open);
  const boxes = nodes.map((node) => sized(node, wrong.get(node.id) ?? []));
  const layout = laidOut(boxes, edges, open);
  const toggle = (event) => {
    const name = event.currentTarget.dataset.flow;
    if (!open.delete(name)) open.add(name);
    redraw();
    [...document.querySelectorAll("svg.graph [data-flow]")].find((each) => each.dataset.flow === name)?.focus();
  };
  const scale = Math.max(0.7, Math.min(1, (place.clientWidth - 34) / layout.width)); // smaller could not be read: then it scrolls
  const picture = s("svg", {
    class: "graph", viewBox: `0 0 ${layout.width} ${layout.height}`, width: Math.round(layout.width * scale), height: Math.round(layout.height * scale), role: "group",
    "aria-label": "Graph of groups, flows, topics, tables and services",
  }, s("defs", {}, tip("tip"), tip("tip-moving")),
  [...layout.frames].map(([id, frame]) => drawFrame(id, frame, toggle)),
  edges.map((edge) => drawEdge(edge, layout.routes.get(edge.key))),
  boxes.map((each) => drawNode(each, layout.boxes.get(each.node.id), toggle)));
  show(place, picture, left > 0 && h("p", { class: "small" }, `${left} topics that only one group or service uses are not drawn; the list below has them.`));
}

