// Every process: a table of all by their groups, and for one group each process with its partitions, and lags over time.

import { get } from "./api.js";
import { chart } from "./charts.js";
import { ago, bytes, compact, element, h, number, rate, show, span, state, time, wide } from "./dom.js";

let lags = new Map();

const nameOf = (each) => each.group || (each.service === each.role ? each.service : `${each.service} ${each.role}`);
const flow = (each, direction) => each.flows.filter((one) => one.direction === direction).reduce((sum, one) => sum + one.rate, 0);

// "0–5, 7" for 0, 1, 2, 3, 4, 5 and 7.
export function ranges(numbers) {
  const found = [];
  for (const one of [...numbers].sort((a, b) => a - b)) {
    if (found.at(-1)?.[1] === one - 1) found.at(-1)[1] = one;
    else found.push([one, one]);
  }
  return found.map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`)).join(", ");
}

// Put what looks the same together: pairs of a text and its members.
function alike(members, textOf) {
  const found = new Map();
  for (const each of members) found.set(textOf(each), [...found.get(textOf(each)) ?? [], each]);
  return [...found];
}

const counted = (numbers) => (numbers.length === 1 ? `partition ${numbers[0]}` : `${numbers.length} partitions`);

function partitions(each) {
  if (!each.partitions.length) return null;
  const lagOf = new Map();
  for (const { partition, lag } of each.inputs) if (lag >= 0) lagOf.set(partition, (lagOf.get(partition) ?? 0) + lag);
  const text = (one) => (one.state === "working" ? (lagOf.get(one.partition) ? `lag ${compact(lagOf.get(one.partition))}` : "no lag")
    : `${Math.floor((one.total ? 1 - one.remaining / one.total : 0) * 100)} %`);
  return h("ul", { class: "partitions", "aria-label": "Partitions" }, alike(each.partitions, (one) => `${one.state}, ${text(one)}`).map(([said, members]) => {
    const [first] = members;
    const numbers = members.map((one) => one.partition);
    const done = first.total ? 1 - first.remaining / first.total : 0;
    return h("li", { class: `${first.state} ${lagOf.get(first.partition) > 0 ? "behind" : ""}`, "data-key": numbers[0] },
      h("b", {}, counted(numbers)), numbers.length > 1 && ` (${ranges(numbers)})`, ` ${said}`,
      first.state === "recovering" && h("progress", { max: 1, value: done, "aria-label": `Recovery of partition ${ranges(numbers)}` }));
  }));
}

// How far the event time of the partitions has come, and what waits for it; partitions with equal values are one line.
function eventTimes(each, now) {
  if (!each.event_times.length) return null;
  const states = [...new Set(each.due.map((one) => one.topic))];
  const short = (topic) => (topic.startsWith(`${each.group}-`) ? topic.slice(each.group.length + 1) : topic);
  const heads = [["Partitions"], ["Watermark"], ["Behind the clock"], ...states.map((topic) => [`Open in ${short(topic)}`]), ["Late records"]];
  const dueOf = new Map(each.due.map((one) => [`${one.topic} ${one.partition}`, one]));
  const due = (one, name) => states.map((topic) => dueOf.get(`${topic} ${one.partition}`)?.[name] ?? 0);
  const lines = alike(each.event_times, (one) => `${Math.floor(one.watermark / 1000)} ${one.due_behind_ms > 0}`);
  const rows = lines.map(([, members]) => {
    const [first] = members;
    const numbers = members.map((one) => one.partition);
    const slowest = Math.max(...members.map((one) => one.due_behind_ms));
    const total = (name) => members.map((one) => due(one, name)).reduce((sums, ones) => sums.map((sum, index) => sum + ones[index]));
    return h("tr", { "data-key": numbers[0] }, h("td", {}, counted(numbers), numbers.length > 1 && h("span", { class: "small" }, ` ${ranges(numbers)}`)),
      h("td", {}, time(first.watermark), slowest ? h("span", { class: "small" }, ` closing, ${span(slowest)} to go`) : null),
      h("td", { class: "number" }, span(Math.max(0, now - first.watermark))),
      total("rows").map((rows) => h("td", { class: "number" }, number(rows))),
      h("td", { class: "number" }, number(total("late").reduce((sum, one) => sum + one, 0))));
  });
  return h("div", wide(`Event time of ${each.instance}`, "event-times"), h("table", {},
    h("caption", {}, "Event time"),
    h("thead", {}, h("tr", {}, heads.map(([text], index) => h("th", { scope: "col", class: index > 1 ? "number" : null }, text)))),
    h("tbody", {}, rows)));
}

// The windows and joins for which many records of the last minute were late, and what would help.
function late(each) {
  return each.due.filter((one) => one.late_advice).map((one) => h("p", { class: "problem", "data-key": `late ${one.topic} ${one.partition}` },
    `${Math.round(100 * one.late_share)} % of a minute's records were late for ${one.topic}, partition ${one.partition}: ${one.late_advice}`));
}

function fact(name, ...value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}

function instance(each, now) {
  const facts = [
    fact("Reported", ago(each.at, now)),
    fact("Started", ago(each.started_at, now)),
    fact("Memory", each.memory_bytes ? bytes(each.memory_bytes) : "–"),
  ];
  if (each.group) {
    facts.unshift(fact("Lag", number(each.lag)), fact("In", rate(flow(each, "in"))), fact("Out", rate(flow(each, "out"))),
      fact("Last commit", ago(each.committed_at, now), each.commit_ms ? h("span", { class: "small" }, ` ${each.commit_ms.toFixed(0)} ms each`) : null),
      fact("Dead letters", number(each.dead_letters)));
    facts.push(fact("Store", bytes(each.store_bytes)), fact("Aborts", number(each.aborts)), fact("Rebalances", number(each.rebalances)));
  } else if (each.requests) {
    facts.unshift(fact("Requests", rate(each.request_rate)), fact("Failed", number(each.failed_requests)));
  }
  for (const copy of each.copies) facts.push(fact(copy.table, `${copy.age_seconds < 10 ? copy.age_seconds.toFixed(1) : Math.round(copy.age_seconds)} s old`));
  return h("article", { class: "instance", "data-key": each.key },
    h("h3", {}, each.instance, " ", state(each.state)),
    h("p", { class: "small" }, `${each.service} ${each.version} ${each.role}, ${each.host} process ${each.pid}`),
    each.error && h("p", { class: "problem" }, `Ended by ${each.error}`),
    partitions(each),
    eventTimes(each, now),
    late(each),
    h("dl", { class: "facts" }, facts));
}

// The lags of a group's partitions; those without any lag are one line.
function charts(name, now) {
  const own = [...lags.values()].filter((one) => one.group === name
    && (!one.topic.endsWith("-retry") || one.points.some(([, lag]) => lag > 0)));
  if (!own.length) return null;
  const [level, drawn] = [[], []];
  for (const one of own) (one.points.every(([, lag]) => lag === 0) ? level : drawn).push(one);
  return h("section", { class: "charts", "data-key": `charts ${name}` },
    h("h3", {}, "Lag in the last ten minutes"),
    h("div", { class: "grid" }, drawn.map((one) => chart(`${one.topic} ${one.partition}`, one.points, now))),
    alike(level, (one) => one.topic).map(([topic, members]) => h("p", { class: "small" }, `${topic}, ${counted(members.map((one) => one.partition))}: no lag.`)));
}

function addPoints(fleet) {
  for (const each of fleet.instances) {
    if (each.state === "silent" || each.state === "failed") continue;
    for (const place of each.inputs) {
      if (place.lag < 0) continue;
      const name = `${each.group} ${place.topic} ${place.partition}`;
      const series = lags.get(name) ?? { group: each.group, topic: place.topic, partition: place.partition, points: [] };
      const last = series.points.at(-1)?.[0] ?? 0;
      if (fleet.now - last >= 2000) series.points.push([fleet.now, place.lag]);
      if (series.points.length > 320) series.points.shift();
      lags.set(name, series);
    }
  }
}

// ---- one group ------------------------------------------------------------------------------------------------------

function onePage(fleet, only) {
  const members = fleet.instances.filter((each) => nameOf(each) === only);
  const back = h("p", {}, h("a", { href: "#/instances" }, "All processes"));
  if (!members.length) return [back, h("p", { class: "empty" }, `No process of ${only} is known.`)];
  return [back, h("section", { class: "card", "data-key": only },
    h("h2", {}, only, h("span", { class: "small" }, members[0].group ? "group" : "service")),
    h("div", { class: "instances" }, members.map((each) => instance(each, fleet.now))),
    charts(only, fleet.now))];
}

// ---- all groups -----------------------------------------------------------------------------------------------------

const WORST = ["failed", "silent", "recovering", "starting", "ready"];
const SORTS = {
  name: ["Name", (one, other) => (one.name < other.name ? -1 : 1)],
  state: ["State, the worst first", (one, other) => one.worst - other.worst],
  lag: ["Lag, the largest first", (one, other) => other.lag - one.lag],
  rate: ["Rate, the highest first", (one, other) => other.rate - one.rate],
};

function groupsOf(fleet, words) {
  const groups = new Map();
  for (const each of fleet.instances) {
    const text = `${nameOf(each)} ${each.service} ${each.role} ${each.instance} ${each.host} ${each.state}`.toLowerCase();
    if (words.every((word) => text.includes(word))) groups.set(nameOf(each), [...groups.get(nameOf(each)) ?? [], each]);
  }
  return [...groups].map(([name, members]) => ({
    name, members, lag: members.reduce((sum, each) => sum + each.lag, 0), rate: members.reduce((sum, each) => sum + flow(each, "in") + each.request_rate, 0),
    worst: Math.min(...members.map((each) => WORST.indexOf(each.state))),
  }));
}

function row(each, now) {
  const live = each.state !== "silent" && each.state !== "failed";
  return h("tr", { "data-key": each.key },
    h("th", { scope: "row" }, each.instance, h("span", { class: "small" }, ` ${each.host}`)), h("td", {}, state(each.state), each.error && h("span", { class: "problem" }, ` ${each.error}`)),
    h("td", {}, each.partitions.length ? counted(each.partitions.map((one) => one.partition)) : "–"),
    h("td", { class: "number" }, each.group ? compact(each.lag) : "–"), h("td", { class: "number" }, live ? rate(each.group ? flow(each, "in") : each.request_rate) : "–"),
    h("td", { class: "number" }, each.group && live ? rate(flow(each, "out")) : "–"), h("td", {}, each.group ? ago(each.committed_at, now) : "–"), h("td", { class: "number" }, each.memory_bytes ? bytes(each.memory_bytes) : "–"));
}

const HEADS = [["Process"], ["State"], ["Partitions"], ["Lag", "number"], ["In", "number"], ["Out", "number"], ["Last commit"], ["Memory", "number"]];

function allPage(fleet, words, sort) {
  if (!fleet.instances.length) return [h("p", { class: "empty" }, "No process has reported yet.")];
  const groups = groupsOf(fleet, words).sort(SORTS.name[1]).sort(SORTS[sort][1]);
  const count = groups.reduce((sum, group) => sum + group.members.length, 0);
  return [
    h("p", { class: "small", role: "status" }, `${number(count)} of ${number(fleet.instances.length)} processes in ${number(groups.length)} groups and services.`),
    count > 0 && h("div", wide("Processes"), h("table", { class: "processes" }, h("caption", { class: "hidden" }, "Processes by group and service"),
      h("thead", {}, h("tr", {}, HEADS.map(([text, kind]) => h("th", { scope: "col", class: kind }, text)))),
      groups.map((group) => h("tbody", { "data-key": group.name },
        h("tr", { class: "group" }, h("th", { scope: "rowgroup", colspan: HEADS.length }, h("a", { href: `#/instances/${encodeURIComponent(group.name)}` }, group.name),
          h("span", { class: "small" }, ` ${group.members[0].group ? "group" : "service"}, ${number(group.members.length)} ${group.members.length === 1 ? "process" : "processes"}${group.lag ? `, lag ${compact(group.lag)}` : ""}`))),
        group.members.map((each) => row(each, fleet.now))))))];
}

export const instances = {
  title: "Instances",
  async begin(place, only) {
    Object.assign(this, { only, fleet: null, sort: "name" });
    const redraw = () => { if (this.fleet) this.onFleet(this.fleet); };
    place.replaceChildren(...(only ? [] : [h("form", { class: "card form", onsubmit: (event) => event.preventDefault() },
      h("div", { class: "field" }, h("label", { for: "process-filter" }, "Filter"), h("input", { id: "process-filter", type: "search", autocomplete: "off", placeholder: "group, process, host or state", oninput: redraw })),
      h("div", { class: "field" }, h("label", { for: "process-sort" }, "Sort by"), h("select", { id: "process-sort", onchange: (event) => { this.sort = event.target.value; redraw(); } },
        Object.entries(SORTS).map(([name, [text]]) => h("option", { value: name }, text)))))]), h("div", { id: "instances" }));
    if (!only) return;
    const found = await get("api/lags");
    const name = (one) => `${one.group} ${one.topic} ${one.partition}`;
    lags = new Map(found.lags.filter((one) => one.group === only).map((one) => [name(one), one]));
  },
  onFleet(fleet) {
    this.fleet = fleet;
    if (this.only) {
      addPoints({ ...fleet, instances: fleet.instances.filter((each) => each.group === this.only) });
      show(element("instances"), onePage(fleet, this.only));
      return;
    }
    const words = element("process-filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    show(element("instances"), allPage(fleet, words, this.sort));
  },
};
