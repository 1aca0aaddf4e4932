// What has happened, with repeated events in one line; and the rates, lags and commit times of the last hour.

import { get } from "./api.js";
import { chart } from "./charts.js";
import { element, h, number, rate, show, span, time } from "./dom.js";

const HOUR_MS = 3_600_000;
const LOOK_AGAIN_MS = 20_000;
const CHARTS_MAX = 12;
const EVENTS_SHOWN = 25;

// The events, the latest first, are put together if they are of one group and kind, and less than ten minutes apart.
const FOLD_MS = 600_000;
const FOLDED = new Set(["aborts", "dead letters", "rebalance"]);

export function foldedEvents(events) {
  const found = [];
  const latest = new Map();
  for (const each of events) {
    const group = each.who.split("/")[0];
    const name = `${group}\n${each.kind}`;
    const known = latest.get(name);
    if (known && FOLDED.has(each.kind) && known.since - each.at <= FOLD_MS) {
      Object.assign(known, { since: each.at, times: known.times + 1, amount: known.amount + each.amount });
      known.processes.add(each.who);
    } else {
      const one = { ...each, group, since: each.at, times: 1, processes: new Set([each.who]) };
      latest.set(name, one);
      found.push(one);
    }
  }
  return found;
}

function said(event) {
  if (event.times === 1) return event.text;
  const during = `in ${span(event.at - event.since)}`;
  if (event.kind === "aborts") return `aborted ${number(event.amount)} commits ${during}${event.reason && `: ${event.reason}`}`;
  if (event.kind === "dead letters") return `could not process ${number(event.amount)} records ${during}`;
  return `${number(event.times)} ${during}, at last: ${event.text}`;
}

function choice(id, label, names, chosen, onchange) {
  return h("div", { class: "field" }, h("label", { for: id }, label), h("select", { id, onchange },
    h("option", { value: "" }, "All"), names.map((name) => h("option", { value: name, selected: name === chosen }, name))));
}

function line(event) {
  const who = event.processes.size === 1 ? event.who : `${event.group}, ${event.processes.size} processes:`;
  return h("li", { class: event.kind.replace(" ", "-"), "data-key": `${event.since} ${event.who} ${event.kind}` },
    time(event.at), h("span", { class: "badge" }, event.kind), h("span", {}, h("b", {}, who), ` ${said(event)}`));
}

const MEASURES = [
  ["Records in", (point) => point[1], rate], ["Lag", (point) => point[2], number], ["Commit time", (point) => point[3], (value) => `${number(Math.round(value))} ms`],
];

function charts(found, group, now) {
  const groups = found.filter((one) => !group || one.group === group);
  if (!groups.length) return h("p", { class: "empty" }, "There are no measurements yet.");
  const drawn = groups.slice(0, CHARTS_MAX);
  return [drawn.map((one) => h("section", { class: "hour", "data-key": one.group }, h("h3", {}, h("a", { href: `#/instances/${encodeURIComponent(one.group)}` }, one.group)),
    h("div", { class: "grid" }, MEASURES.map(([name, value, text]) => chart(name, one.points.map((point) => [point[0], value(point)]), now, { span: HOUR_MS, text, label: `${name} of ${one.group} in the last hour` }))))),
  groups.length > drawn.length && h("p", { class: "small" }, `${groups.length - drawn.length} more groups: choose one above.`)];
}

export const history = {
  title: "History",
  begin(place) {
    Object.assign(this, { seen: -1, looked: 0, events: [], measures: [], group: "", kind: "", most: EVENTS_SHOWN });
    place.replaceChildren(
      h("form", { id: "history-filter", class: "card form", onsubmit: (event) => event.preventDefault() }),
      h("section", { class: "card" }, h("h2", {}, "Events"), h("div", { id: "history" })),
      h("section", { class: "card" }, h("h2", {}, "The last hour"), h("div", { id: "hour" })));
  },
  async onFleet(fleet) {
    this.now = fleet.now;
    if (fleet.events === this.seen && fleet.now - this.looked < LOOK_AGAIN_MS) return;
    Object.assign(this, { seen: fleet.events, looked: fleet.now });
    const [events, measures] = await Promise.all([get("api/history"), get("api/measures")]);
    Object.assign(this, { events: foldedEvents(events.events), measures: measures.groups });
    this.draw();
  },
  draw() {
    if (!element("history-filter")) return;
    const names = (name) => [...new Set(this.events.map((event) => event[name]).filter(Boolean))].sort();
    const groups = [...new Set([...names("group"), ...this.measures.map((one) => one.group)])].sort();
    show(element("history-filter"),
      choice("history-group", "Group or service", groups, this.group, (event) => { this.group = event.target.value; this.draw(); }),
      choice("history-kind", "Kind", names("kind"), this.kind, (event) => { this.kind = event.target.value; this.draw(); }));
    const chosen = this.events.filter((event) => (!this.group || event.group === this.group) && (!this.kind || event.kind === this.kind));
    show(element("history"), chosen.length
      ? [h("ol", { class: "events" }, chosen.slice(0, this.most).map(line)),
        chosen.length > this.most && h("p", {}, h("button", { type: "button", onclick: () => { this.most += EVENTS_SHOWN; this.draw(); } }, `More of ${number(chosen.length)} events`))]
      : h("p", { class: "empty" }, this.events.length ? "No event is of this group and kind." : "Nothing has happened that is known: no start, stop, rebalance or error."));
    show(element("hour"), charts(this.measures, this.group, this.now));
  },
};
