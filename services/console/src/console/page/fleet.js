// Every process with its partitions, lags over time, and what has happened.

import { get } from "./api.js";
import { chart } from "./charts.js";
import { ago, bytes, compact, element, h, number, rate, show, span, state, time, wide } from "./dom.js";

let lags = new Map();
let events = [];
let eventsSeen = -1;

const nameOf = (each) => each.group || (each.service === each.role ? each.service : `${each.service} ${each.role}`);
const flow = (each, direction) => each.flows.filter((one) => one.direction === direction).reduce((sum, one) => sum + one.rate, 0);

function partitions(each) {
  if (!each.partitions.length) return null;
  return h("ul", { class: "partitions", "aria-label": "Partitions" }, each.partitions.map((one) => {
    const places = each.inputs.filter((input) => input.partition === one.partition && input.lag >= 0);
    const lag = places.reduce((sum, input) => sum + input.lag, 0);
    const done = one.total ? 1 - one.remaining / one.total : 0;
    const text = one.state === "working" ? (lag ? `lag ${compact(lag)}` : "") : `${Math.floor(done * 100)} %`;
    return h("li", { class: `${one.state} ${lag > 0 ? "behind" : ""}`, "data-key": one.partition, title: `partition ${one.partition}: ${one.state}, lag ${number(lag)}` },
      h("span", { class: "hidden" }, "partition "), h("b", {}, one.partition),
      h("span", { class: "hidden" }, ` ${one.state} `), text && h("span", {}, ` ${text}`),
      one.state === "recovering" && h("progress", { max: 1, value: done, "aria-label": `Recovery of partition ${one.partition}` }));
  }));
}

// How far the event time of each partition has come, and what waits for it.
function eventTimes(each, now) {
  if (!each.event_times.length) return null;
  const states = [...new Set(each.due.map((one) => one.topic))];
  const short = (topic) => (topic.startsWith(`${each.group}-`) ? topic.slice(each.group.length + 1) : topic);
  const heads = [["Partition"], ["Watermark"], ["Behind the clock"], ...states.map((topic) => [`Open in ${short(topic)}`]), ["Late records"]];
  const rows = each.event_times.map((one) => {
    const own = each.due.filter((due) => due.partition === one.partition);
    const late = own.reduce((sum, due) => sum + due.late, 0);
    const behind = one.due_behind_ms ? h("span", { class: "small" }, ` closing, ${span(one.due_behind_ms)} to go`) : null;
    return h("tr", { "data-key": one.partition }, h("td", {}, one.partition), h("td", {}, time(one.watermark), behind),
      h("td", { class: "number" }, span(Math.max(0, now - one.watermark))),
      states.map((topic) => h("td", { class: "number" }, number(own.find((due) => due.topic === topic)?.rows ?? 0))),
      h("td", { class: "number" }, number(late)));
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

// The partitions of each topic together. They are measured at the same moments, but for those of other processes.
function totals(own, now) {
  const topics = new Map();
  for (const { topic, points } of own) {
    const sums = topics.get(topic) ?? topics.set(topic, new Map()).get(topic);
    for (const [at, lag] of points) sums.set(at, (sums.get(at) ?? 0) + lag);
  }
  return [...topics].map(([topic, sums]) => chart(topic, [...sums].sort(([one], [other]) => one - other), now));
}

function charts(name, now, each) {
  const own = [...lags.values()].filter((one) => one.group === name
    && (!one.topic.endsWith("-retry") || one.points.some(([, lag]) => lag > 0)));
  if (!own.length) return null;
  const drawn = each ? own.map((one) => chart(`${one.topic} ${one.partition}`, one.points, now)) : totals(own, now);
  return h("section", { class: "charts", "data-key": `charts ${name}` },
    h("h3", {}, "Lag in the last ten minutes", each ? null : h("a", { class: "small", href: `#/instances/${encodeURIComponent(name)}` }, "of each partition")),
    h("div", { class: "grid" }, drawn));
}

function instancesPage(fleet, only) {
  const groups = new Map();
  for (const each of fleet.instances) {
    const name = nameOf(each);
    if (!only || name === only) groups.set(name, [...(groups.get(name) ?? []), each]);
  }
  if (!groups.size) return [h("p", { class: "empty" }, only ? `No process of ${only} is known.` : "No process has reported yet.")];
  const back = only ? [h("p", {}, h("a", { href: "#/instances" }, "All processes"))] : [];
  return [...back, ...[...groups].sort(([one], [other]) => (one < other ? -1 : 1)).map(([name, members]) => h("section", { class: "card", "data-key": name },
    h("h2", {}, h("a", { href: `#/instances/${encodeURIComponent(name)}` }, name), h("span", { class: "small" }, members[0].group ? "group" : "service")),
    h("div", { class: "instances" }, members.map((each) => instance(each, fleet.now))),
    charts(name, fleet.now, only)))];
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

export const instances = {
  title: "Instances",
  async begin(place, only) {
    place.replaceChildren(h("div", { id: "instances", class: only ? null : "many" }));
    this.only = only;
    const found = await get("api/lags");
    const name = (one) => `${one.group} ${one.topic} ${one.partition}`;
    lags = new Map(found.lags.map((one) => [name(one), one]));
  },
  onFleet(fleet) {
    addPoints(fleet);
    show(element("instances"), instancesPage(fleet, this.only));
  },
};

export const history = {
  title: "History",
  begin(place) {
    eventsSeen = -1;
    place.replaceChildren(h("div", { id: "history" }));
  },
  async onFleet(fleet) {
    if (fleet.events === eventsSeen) return;
    eventsSeen = fleet.events;
    events = (await get("api/history")).events;
    const place = element("history");
    if (!place) return;
    show(place, events.length
      ? h("ol", { class: "events card" }, events.map((event) => h("li", { class: event.kind.replace(" ", "-"), "data-key": `${event.at} ${event.who} ${event.kind}` },
        time(event.at), h("span", { class: "badge" }, event.kind), h("span", {}, h("b", {}, event.who), ` ${event.text}`))))
      : h("p", { class: "empty" }, "Nothing is known to have happened: no start, stop, rebalance or error."));
  },
};
