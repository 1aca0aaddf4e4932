// The first page: what is wrong now, a few numbers, and the graph.

import { compact, element, h, number, show, state, wide } from "./dom.js";
import { showFindings } from "./findings.js";
import { showGraph } from "./graph.js";
import { showOutline } from "./outline.js";

const NARROW = window.matchMedia("(max-width: 700px)");
const open = new Set(); // the flows that are open, as long as the tab lives

function summary(fleet) {
  const counts = new Map();
  for (const each of fleet.instances) counts.set(each.state, (counts.get(each.state) ?? 0) + 1);
  const total = (name) => fleet.instances.reduce((sum, each) => sum + each[name], 0);
  const tile = (name, ...content) => h("div", { class: "tile" }, h("dt", {}, name), h("dd", {}, content));
  return h("dl", { class: "tiles" },
    tile("Processes", number(fleet.instances.length), h("span", { class: "small" }, [...counts].sort().map(([name, count]) => state(name, count)))),
    tile("Groups", number(fleet.graph.nodes.filter((node) => node.kind === "group").length)),
    tile("Lag", compact(total("lag")), h("span", { class: "small" }, "records to process")),
    tile("Dead letters", compact(total("dead_letters")), h("span", { class: "small" }, h("a", { href: "#/letters" }, "since the processes started"))));
}

export const overview = {
  title: "Fleet",
  begin(place, finding) {
    this.finding = finding;
    place.replaceChildren(
      h("section", { id: "findings", class: "card" }), h("div", { id: "summary" }),
      h("div", { id: "graph", ...wide("Graph"), hidden: true }),
      h("details", { id: "as-list", class: "card" }, h("summary", {}, "The graph as a list"), h("div", { id: "outline" })));
  },
  onFleet(fleet) {
    showFindings(element("findings"), fleet);
    show(element("summary"), summary(fleet));
    const drawn = fleet.graph.nodes.length > 0 && !NARROW.matches;
    element("graph").hidden = !drawn;
    element("as-list").hidden = !fleet.graph.nodes.length;
    if (NARROW.matches) element("as-list").open = true;
    const redraw = () => this.onFleet(fleet);
    if (drawn) showGraph(element("graph"), fleet, open, redraw);
    if (element("as-list").open) showOutline(element("outline"), fleet, open, redraw);
    element("as-list").ontoggle = redraw;
    this.focusFinding();
  },
  // The graph links to the explanation of what is wrong with a node.
  focusFinding() {
    if (!this.finding) return;
    const found = [...document.querySelectorAll(".finding")].find((each) => each.dataset.node.split("\n").includes(this.finding));
    this.finding = null;
    if (!found) return;
    found.closest("details")?.setAttribute("open", "");
    found.focus();
    found.scrollIntoView({ block: "center" });
  },
};
