// What is wrong now, the worst first, with its age and what to do: the same that `streamtable doctor` finds.

import { h, show, span, time } from "./dom.js";

const SHOWN = 6;
const WORDS = { problem: "Problem", warning: "Warning" };
const SIGNS = { problem: "✕", warning: "!" };

// Equal troubles of several processes of one group, or of one flow, are one entry.
export function foldedFindings(fleet) {
  const flows = new Map(fleet.graph.nodes.map((node) => [node.id, node.flow]));
  const found = new Map();
  for (const each of fleet.findings) {
    const key = `${each.level} ${flows.get(each.node) ?? (each.node || each.subject)} ${each.advice}`;
    found.set(key, [...found.get(key) ?? [], each]);
  }
  return [...found].map(([key, members]) => ({ key, members, first: members[0] }));
}

const since = (each, now) => (each.since === null ? null
  : h("p", { class: "age" }, h("b", {}, span(Math.max(0, now - each.since))), h("span", { class: "small" }, " since ", time(each.since))));

const nameOf = (each) => /^(?:group|service) (.*)$/.exec(each.node)?.[1];

function subject(each) {
  const name = nameOf(each);
  return name ? h("a", { href: `#/instances/${encodeURIComponent(name)}` }, name) : h("b", {}, each.subject);
}

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}${text.endsWith(".") ? "" : "."}`;

function entry({ key, members, first }, now) {
  const rest = members.slice(1);
  return h("li", { class: `finding is-${first.level}`, "data-key": key, "data-node": [...new Set(members.map((each) => each.node))].join("\n"), tabindex: "-1" },
    h("p", { class: "level" }, h("span", { "aria-hidden": "true" }, `${SIGNS[first.level] ?? "·"} `), WORDS[first.level] ?? first.level),
    h("div", {},
      h("p", { class: "what" }, subject(first), first.instance && h("span", { class: "small" }, ` ${first.instance}`), ` ${first.fact}`),
      rest.length > 0 && h("details", {}, h("summary", {}, `The same in ${rest.length} more ${rest.length === 1 ? "place" : "places"}`),
        h("ul", {}, rest.map((each) => h("li", { "data-key": each.subject }, nameOf(each) ? subject(each) : h("b", {}, each.subject), h("span", { class: "small" }, ` ${each.instance}`), ` ${each.fact}`)))),
      h("p", { class: "todo" }, h("b", {}, "What to do: "), sentence(first.advice))),
    since(first, now));
}

function well(fleet) {
  const count = fleet.instances.length;
  if (!fleet.ready) return h("p", { class: "empty" }, "The statuses of the processes are being loaded.");
  if (!count) return h("p", { class: "empty" }, "No process has reported yet. Start them with SERVICEKIT_STATUS_TOPIC=streamtable-status.");
  return h("p", { class: "well" }, h("span", { "aria-hidden": "true" }, "✓ "), h("b", {}, "All is well."), ` ${count === 1 ? "One process reports" : `All ${count} processes report`}, and nothing is wrong with ${count === 1 ? "it" : "them"}.`);
}

// Brokers and groups are checked once a minute; processes report by themselves.
function checks({ checked, now }) {
  if (checked === null) return "Brokers and groups have not been checked yet.";
  return `Brokers and groups were checked ${now - checked < 10_000 ? "just now" : `${span(now - checked)} ago`}, as “streamtable doctor” does.`;
}

export function showFindings(place, fleet) {
  const entries = foldedFindings(fleet).map((each) => entry(each, fleet.now));
  const [first, rest] = [entries.slice(0, SHOWN), entries.slice(SHOWN)];
  show(place, h("h2", {}, "What is wrong now", h("span", { class: "small" }, checks(fleet))),
    entries.length ? h("ul", { class: "findings" }, first) : well(fleet),
    rest.length > 0 && h("details", { "data-key": "rest" }, h("summary", {}, `${rest.length} more`), h("ul", { class: "findings" }, rest)));
}
