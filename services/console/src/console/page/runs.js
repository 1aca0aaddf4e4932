// Runs of batch jobs: what each has read, what it came to, and what audits have found.

import { get } from "./api.js";
import { ago, element, h, number, show, state, time, wide } from "./dom.js";

const LOOK_AGAIN_MS = 15_000; // a run that was killed shows by its silence

function lasted(run, now) {
  const seconds = Math.max(0, ((run.finished_at || (run.state === "running" ? now : run.at)) - run.started_at) / 1000);
  if (seconds < 100) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  return seconds < 6000 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function result(run) {
  if (run.error) return run.error.split("\n")[0];
  if (run.state === "running" || run.state === "killed") return run.stages ? `${run.stage || "running"}, ${run.stages_done} of ${run.stages} stages done` : run.stage;
  return run.summary;
}

const about = (run) => [run.group, run.as_group && `as ${run.as_group}`].filter(Boolean).join(" ") || "–";

function list(found, now) {
  if (!found.length) return h("p", { class: "empty" }, "No run has reported yet.");
  const heads = [["Started"], ["Job"], ["Group"], ["State"], ["Took", "number"], ["Records", "number"], ["Result"]];
  return h("div", wide("Runs of jobs"), h("table", {},
    h("caption", { class: "hidden" }, "Runs of jobs, the latest first"),
    h("thead", {}, h("tr", {}, heads.map(([text, kind]) => h("th", { scope: "col", class: kind }, text)))),
    h("tbody", {}, found.map((run) => h("tr", { "data-key": run.run },
      h("td", {}, time(run.started_at)),
      h("th", { scope: "row" }, h("a", { href: `#/runs/${encodeURIComponent(run.run)}` }, run.job)),
      h("td", {}, about(run)), h("td", {}, state(run.state)),
      h("td", { class: "number" }, lasted(run, now)), h("td", { class: "number" }, number(run.records)),
      h("td", { class: "result" }, result(run)))))));
}

const fact = (name, ...value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));

function facts(run, now) {
  const some = [
    fact("State", state(run.state)), fact("Started", time(run.started_at)), fact("Took", lasted(run, now)),
    fact("Records", number(run.records)),
  ];
  if (!run.finished_at) some.push(fact("Reported", ago(run.at, now)));
  if (run.stages) some.push(fact("Stages", `${run.stages_done} of ${run.stages}`));
  if (run.differences >= 0) some.push(fact("Keys that differ", number(run.differences)));
  for (const [name, count] of Object.entries(run.counts)) some.push(fact(name, number(count)));
  const texts = { Group: run.group, "Written as": run.as_group, Lake: run.lake, Report: run.report, Host: run.host, Version: run.version };
  for (const [name, text] of Object.entries(texts)) if (text) some.push(fact(name, text));
  return h("dl", { class: "facts" }, some);
}

function table(title, heads, rows) {
  return h("div", wide(title), h("h2", {}, title), h("table", {},
    h("thead", {}, h("tr", {}, heads.map(([text, kind]) => h("th", { scope: "col", class: kind }, text)))),
    h("tbody", {}, rows)));
}

function inputs(run) {
  const heads = [["Topic"], ["Partition", "number"], ["From", "number"], ["Up to", "number"], ["Offsets", "number"]];
  return table("Inputs", heads, run.inputs.map((each) => h("tr", { "data-key": `${each.topic} ${each.partition}` },
    h("th", { scope: "row" }, each.topic), [each.partition, each.start, each.end, each.end - each.start].map((value) => h("td", { class: "number" }, number(value))))));
}

function differences(run) {
  const heads = [["Key"], ["Partition", "number"], ["What"], ["As computed"], ["In the table"]];
  const code = (text) => (text ? h("code", {}, text) : h("span", { class: "kind" }, "none"));
  return table("Keys that differ", heads, run.keys.map((each) => h("tr", { "data-key": `${each.partition} ${each.key}` },
    h("th", { scope: "row" }, h("code", {}, each.key)), h("td", { class: "number" }, each.partition),
    h("td", {}, each.difference), h("td", {}, code(each.expected)), h("td", {}, code(each.live)))));
}

function report(run, now) {
  const good = run.state === "done" && run.differences === 0;
  return [
    h("div", { class: "card" },
      h("h2", {}, run.job, h("span", { class: "small" }, run.run)),
      run.error && h("p", { class: "problem" }, run.error),
      run.state === "killed" && h("p", { class: "problem" }, "It has not reported for a minute, and has not reported its end: it was killed, or it cannot reach Kafka."),
      result(run) && !run.error && h("p", {}, result(run)),
      good && h("p", {}, "Every row agrees with the inputs."),
      facts(run, now)),
    run.keys.length > 0 && differences(run),
    run.inputs.length > 0 && inputs(run),
    run.omitted > 0 && h("p", { class: "small" }, `${number(run.omitted)} more entries are not shown.`),
  ];
}

export const runs = {
  title: "Runs",
  begin(place, name) {
    Object.assign(this, { name, found: null, seen: null, looked: 0, now: 0 });
    place.replaceChildren(
      ...(name ? [h("p", {}, h("a", { href: "#/runs" }, "All runs"))] : []),
      h("p", { id: "runs-said", role: "status", class: "problem" }), h("div", { id: "runs" }));
  },
  async onFleet(fleet) {
    this.now = fleet.now;
    const topic = fleet.topics.find((each) => each.topic === fleet.runs_topic);
    if (!topic) {
      if (fleet.ready) show(element("runs"), h("p", { class: "empty" }, `The topic ${fleet.runs_topic}, to which jobs report their runs, does not exist. Create it with “streamtable topics apply”.`));
      return;
    }
    if (topic.records !== this.seen || fleet.now - this.looked > LOOK_AGAIN_MS) {
      Object.assign(this, { seen: topic.records, looked: fleet.now });
      await this.look();
    } else {
      this.draw();
    }
  },
  async look() {
    const { name } = this;
    try {
      const found = await get(name ? `api/runs/${encodeURIComponent(name)}` : "api/runs");
      if (name !== this.name || !element("runs")) return;
      this.found = name ? found : found.runs;
      element("runs-said").textContent = "";
      this.draw();
    } catch (error) {
      if (element("runs-said")) element("runs-said").textContent = error.message;
    }
  },
  draw() {
    const place = element("runs");
    if (!place || !this.found) return;
    show(place, this.name ? report(this.found, this.now) : list(this.found, this.now));
  },
};
