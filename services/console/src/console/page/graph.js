// The graph of all groups, topics, tables and services, with rates on the arrows. The service says where each is drawn.

import { compact, element, h, number, rate, s, show, state, wide } from "./dom.js";

const MARGIN = 10;
let drawn = "";
let parts = new Map();

const LABEL = { narrow: 18, wide: 26 };
const most = () => (narrow() ? LABEL.narrow : LABEL.wide);
const narrow = () => window.matchMedia("(max-width: 700px)").matches;
const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function lines(node) {
  if (node.kind === "group" || node.kind === "service") {
    const total = node.instances ?? 0;
    const bad = Object.entries(node.states ?? {}).filter(([name]) => name !== "ready").map(([name, count]) => `${count} ${name}`);
    const said = bad.length ? bad.join(", ") : `${total} ready`;
    return { detail: node.lag > 0 ? `${said} · lag ${compact(node.lag)}` : said };
  }
  if (node.records === undefined) return { detail: node.detail };
  const grows = node.kind === "table" ? "" : ` · ${rate(node.rate) || "–"}`;
  return { detail: `${compact(node.records)} records${grows}` };
}

function health(node) {
  const states = node.states ?? {};
  if (states.failed || states.silent) return "bad";
  return states.recovering || states.starting ? "busy" : "good";
}

function target(node) {
  if (node.kind === "group" || node.kind === "service") return `#/instances/${encodeURIComponent(node.label)}`;
  return `#/${node.kind === "table" ? "tables" : "topics"}/${encodeURIComponent(node.label)}`;
}

function outline({ x, y, width, height }, kind) {
  const [left, top] = [x - width / 2, y - height / 2];
  if (kind === "group") return s("rect", { class: "body", x: left, y: top, width, height, rx: 8 });
  if (kind === "service") return s("rect", { class: "body", x: left, y: top, width, height, rx: height / 2 });
  const bow = 6; // a drum: what holds records
  const right = left + width;
  const bottom = top + height;
  return s("g", {},
    s("path", { class: "body", d: `M${left} ${top + bow}V${bottom - bow}C${left} ${bottom + bow / 2} ${right} ${bottom + bow / 2} ${right} ${bottom - bow}V${top + bow}C${right} ${top - bow / 2} ${left} ${top - bow / 2} ${left} ${top + bow}Z` }),
    s("path", { class: "lid", d: `M${left} ${top + bow}C${left} ${top + 2.5 * bow} ${right} ${top + 2.5 * bow} ${right} ${top + bow}` }));
}

function curve(points, down, beside, boxes, edge) {
  if (beside) { // around the outside, from the end of one to the beginning of the other
    const [from, to] = [boxes.get(edge.source), boxes.get(edge.target)];
    if (down) {
      const [right, x1, x2] = [Math.max(from.x + from.width / 2, to.x + to.width / 2) + 14, from.x + from.width / 2, to.x + to.width / 2];
      return `M${x1} ${from.y}C${right} ${from.y} ${right} ${to.y} ${x2} ${to.y}`;
    }
    const low = Math.max(from.y + from.height / 2, to.y + to.height / 2) + 16;
    return `M${from.x} ${from.y + from.height / 2}C${from.x} ${low + 8} ${to.x} ${low + 8} ${to.x} ${to.y + to.height / 2 + 3}`;
  }
  return points.slice(1).reduce((path, to, index) => {
    const from = points[index];
    const half = down ? (to.y - from.y) / 2 : (to.x - from.x) / 2;
    return path + (down
      ? `C${from.x} ${from.y + half} ${to.x} ${to.y - half} ${to.x} ${to.y}`
      : `C${from.x + half} ${from.y} ${to.x - half} ${to.y} ${to.x} ${to.y}`);
  }, `M${points[0].x} ${points[0].y}`);
}

const edgeName = (edge) => `${edge.source}\n${edge.target}\n${edge.how}`;

function drawEdge({ edge, points, beside }, boxes, down) {
  const path = s("path", { class: "flow", d: curve(points, down, beside, boxes, edge), "marker-end": "url(#tip)" });
  const [one, other] = points.map(({ x, y }) => ({ x, y: y + (beside ? 44 : 0) }));
  const label = s("text", {
    class: "rate", x: (one.x + other.x) / 2 + (down ? 6 : 0), y: (one.y + other.y) / 2 + (down ? 4 : -5), "text-anchor": down ? "start" : "middle",
  });
  parts.set(edgeName(edge), { path, label });
  return s("g", {}, path, label);
}

function drawNode(node, box) {
  const label = s("text", { class: "label", x: box.x, y: box.y - 2, "text-anchor": "middle" }, cut(node.label, most()));
  const detail = s("text", { class: "detail", x: box.x, y: box.y + 14, "text-anchor": "middle" });
  const title = s("title", {});
  const link = s("a", { href: target(node), class: `node ${node.kind}` }, title, outline(box, node.kind), label, detail);
  parts.set(node.id, { link, detail, title });
  return link;
}

function draw(place, graph, layout, down) {
  parts = new Map();
  const { width, height } = layout;
  const boxes = new Map(graph.nodes.map((node, index) => [node.id, layout.boxes[index]]));
  const routes = layout.routes.map((route, index) => ({ ...route, edge: graph.edges[index], points: route.points.map(([x, y]) => ({ x, y })) }));
  const [broad, high] = [width + 2 * MARGIN, height + 2 * MARGIN + 14];
  const picture = s("svg", {
    class: "graph", viewBox: `${-MARGIN} ${-MARGIN} ${broad} ${high}`, width: broad, height: high, role: "group",
    "aria-label": "Graph of groups, topics, tables and services",
  },
    s("defs", {}, s("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
      s("path", { class: "tip", d: "M0 0L8 4L0 8Z" }))),
    routes.map((route) => drawEdge(route, boxes, down)),
    graph.nodes.map((node) => drawNode(node, boxes.get(node.id))));
  place.replaceChildren(picture);
  const scale = Math.max(0.75, Math.min(1, (place.clientWidth - 34) / broad)); // smaller could not be read: then it scrolls
  picture.setAttribute("width", broad * scale);
  picture.setAttribute("height", high * scale);
  const first = boxes.get(graph.nodes[0].id);
  if (down) place.scrollLeft = first.x * scale - place.clientWidth / 2;
}

function update(graph) {
  for (const node of graph.nodes) {
    const { link, detail, title } = parts.get(node.id);
    const text = lines(node).detail;
    if (detail.textContent !== text) detail.textContent = text;
    title.textContent = `${node.kind} ${node.label}: ${text}`;
    link.setAttribute("class", `node ${node.kind} ${node.states ? health(node) : ""}`);
  }
  for (const edge of graph.edges) {
    const { path, label } = parts.get(edgeName(edge));
    const text = rate(edge.rate);
    if (label.textContent !== text) label.textContent = text;
    const speed = !edge.rate || edge.rate < 0.05 ? "" : edge.rate < 10 ? "slow" : "fast";
    path.setAttribute("class", `flow ${edge.how.replace(" ", "-")} ${speed}`);
  }
}

function list(graph) {
  const label = new Map(graph.nodes.map((node) => [node.id, node.label]));
  return h("details", { class: "card" }, h("summary", {}, "The same as a list"),
    h("div", wide("The same as a list", ""), h("table", {},
      h("thead", {}, h("tr", {}, ["From", "To", "How", "Records"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, graph.edges.map((edge) => h("tr", { "data-key": edgeName(edge) },
        h("td", {}, label.get(edge.source)), h("td", {}, label.get(edge.target)), h("td", {}, edge.how),
        h("td", { class: "number" }, rate(edge.rate) || "–")))))));
}

function summary(fleet) {
  const counts = new Map();
  for (const each of fleet.instances) counts.set(each.state, (counts.get(each.state) ?? 0) + 1);
  const lag = fleet.instances.reduce((sum, each) => sum + each.lag, 0);
  const letters = fleet.instances.reduce((sum, each) => sum + each.dead_letters, 0);
  const tile = (name, ...content) => h("div", { class: "tile" }, h("dt", {}, name), h("dd", {}, content));
  return h("dl", { class: "tiles" },
    tile("Processes", number(fleet.instances.length), h("span", { class: "small" }, [...counts].sort().map(([name, count]) => state(name, count)))),
    tile("Groups", number(fleet.graph.nodes.filter((node) => node.kind === "group").length)),
    tile("Lag", compact(lag), h("span", { class: "small" }, "records to go")),
    tile("Dead letters", compact(letters), h("span", { class: "small" }, h("a", { href: "#/letters" }, "since the starts"))));
}

export const page = {
  title: "Fleet",
  begin(place) {
    drawn = "";
    place.replaceChildren(h("div", { id: "summary" }), h("div", { id: "graph", class: "card wide" }), h("div", { id: "graph-list" }));
  },
  onFleet(fleet) {
    show(element("summary"), summary(fleet));
    const { graph } = fleet;
    const layout = graph.layouts?.[narrow() ? "narrow" : "wide"];
    const structure = JSON.stringify([graph.nodes.map((node) => [node.id, node.kind]), graph.edges.map(edgeName), layout]);
    if (!graph.nodes.length) {
      drawn = "";
      show(element("graph"), h("p", { class: "empty" }, fleet.ready
        ? "No process has reported yet. Start them with SERVICEKIT_STATUS_TOPIC=streamtable-status."
        : "The statuses of the processes are being loaded."));
      return;
    }
    if (!layout) {
      drawn = "";
      show(element("graph"), h("p", { class: "empty" }, "The graph is too large to draw. Here it is as a list."));
      show(element("graph-list"), list(graph));
      return;
    }
    if (structure !== drawn) {
      const focused = document.activeElement?.getAttribute?.("href");
      draw(element("graph"), graph, layout, narrow());
      drawn = structure;
      if (focused) [...document.querySelectorAll("svg.graph a")].find((link) => link.getAttribute("href") === focused)?.focus();
    }
    update(graph);
    show(element("graph-list"), list(graph));
  },
};
