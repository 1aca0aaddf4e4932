// Tables, row by row and as they change; topics, record by record.

import { follow, get } from "./api.js";
import { compact, element, h, number, rate, show, shown, time, wide } from "./dom.js";

const [PAGE, LARGEST] = [50, 20];
let stop = null;

function end() {
  stop?.();
  stop = null;
}

function picker(label, kind, names, chosen) {
  return h("div", { class: "field" }, h("label", { for: "picked" }, label),
    h("select", { id: "picked", onchange: (event) => { location.hash = `#/${kind}/${encodeURIComponent(event.target.value)}`; } },
      !names.includes(chosen) && h("option", { value: "" }, chosen || "Choose one"),
      names.map((name) => h("option", { value: name, selected: name === chosen }, name))));
}

function field(id, label, attributes) {
  return h("div", { class: "field" }, h("label", { for: id }, label), h("input", { id, autocomplete: "off", ...attributes }));
}

function say(id, text, wrong = false) {
  const place = element(id);
  if (!place) return;
  place.textContent = text;
  place.className = wrong ? "problem" : "small";
}

// ---- tables ---------------------------------------------------------------------------------------------------------

const tableNames = (fleet) => fleet.graph.nodes.filter((node) => node.kind === "table").map((node) => node.label).sort();

// The largest tables, before one is chosen.
function largest(fleet) {
  const known = new Map(fleet.topics.map((topic) => [topic.topic, topic]));
  const found = tableNames(fleet).map((name) => ({ name, ...known.get(name) })).sort((one, other) => (other.records ?? 0) - (one.records ?? 0));
  if (!found.length) return h("p", { class: "empty" }, "No process has reported a table yet.");
  const writers = new Map();
  for (const { source, target } of fleet.graph.edges) writers.set(target, source.replace(/^group /, ""));
  return h("div", wide("Tables"), h("table", {}, h("caption", {}, "Tables, the largest first"),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Table"), h("th", { scope: "col" }, "Written by"), ["Partitions", "Records", "Growth"].map((text) => h("th", { scope: "col", class: "number" }, text)))),
    h("tbody", {}, found.slice(0, LARGEST).map((each) => h("tr", { "data-key": each.name },
      h("th", { scope: "row" }, h("a", { href: `#/tables/${encodeURIComponent(each.name)}` }, each.name)), h("td", {}, writers.get(`topic ${each.name}`) ?? "–"),
      h("td", { class: "number" }, number(each.partitions)), h("td", { class: "number", title: number(each.records) }, each.records === undefined ? "–" : compact(each.records)),
      h("td", { class: "number" }, rate(each.rate) || "–"))))),
  found.length > LARGEST && h("p", { class: "small" }, `${number(found.length - LARGEST)} smaller tables are in the list above.`));
}

function rowOf(row, changed) {
  return h("tr", { "data-key": row.id, class: changed ? "changed" : null }, h("th", { scope: "row" }, shown(row.key)),
    h("td", {}, row.value === null ? h("span", { class: "kind" }, "deleted") : shown(row.value)));
}

const tablesPage = {
  title: "Tables",
  begin(place, name) {
    end();
    this.name = name;
    this.names = null;
    this.rows = new Map();
    this.next = null;
    this.waiting = null;
    place.replaceChildren(
      h("form", { class: "card form", id: "table-form", onsubmit: (event) => { event.preventDefault(); this.look(); } },
        h("div", { id: "table-picker" }),
        field("prefix", "Key begins with", { type: "search", maxlength: 200, placeholder: "all keys" }),
        h("button", { type: "submit", class: "main" }, "Search")),
      h("p", { id: "table-said", role: "status", class: "small" }, name ? "" : "Choose a table. The console copies it when it is first viewed."),
      ...(name ? [] : [h("div", { id: "largest" })]),
      h("div", { id: "rows", hidden: true, ...wide("Rows") }),
      h("p", {}, h("button", { id: "more", type: "button", hidden: true, onclick: () => this.more() }, "More rows")));
    if (name) this.look();
  },
  onFleet(fleet) {
    const names = tableNames(fleet);
    if (!this.name) show(element("largest"), largest(fleet));
    if (JSON.stringify(names) === JSON.stringify(this.names)) return;
    this.names = names;
    element("table-picker").replaceChildren(picker("Table", "tables", names, this.name));
  },
  end,
  async ask(after) {
    const query = new URLSearchParams({ limit: PAGE, prefix: this.prefix });
    if (after) query.set("after", after);
    return get(`api/tables/${encodeURIComponent(this.name)}/rows?${query}`);
  },
  // Changes are followed first and the rows asked for then, so that none is missed in between; nor after a lost connection.
  look() {
    if (!this.name) return;
    end();
    this.prefix = element("prefix").value;
    this.rows = new Map();
    say("table-said", "Loading…");
    const [query, prefix] = [new URLSearchParams({ prefix: this.prefix }), this.prefix];
    stop = follow(`api/tables/${encodeURIComponent(this.name)}/events?${query}`, (kind, data) => {
      if (kind === "missed") this.load(prefix);
      else if (kind === "rows") this.changed(data.rows);
    }, (well, error) => {
      if (well) this.load(prefix);
      else if (error) say("table-said", error.message, true);
    });
  },
  // As many rows as were shown.
  async load(prefix) {
    const [shown, waiting] = [this.rows.size, []];
    this.waiting = waiting;
    try {
      let found = await this.ask(null);
      const rows = found.rows;
      while (found.next && rows.length < shown) {
        found = await this.ask(found.next);
        rows.push(...found.rows);
      }
      if (this.waiting !== waiting || !element("rows") || prefix !== this.prefix) return;
      [this.rows, this.waiting] = [new Map(), null];
      this.add({ rows, next: found.next });
      if (waiting.length) this.changed(waiting);
    } catch (error) {
      say("table-said", error.message, true);
    }
  },
  async more() {
    try { this.add(await this.ask(this.next)); } catch (error) { say("table-said", error.message, true); }
  },
  add(found) {
    for (const row of found.rows) this.rows.set(row.id, row);
    this.next = found.next;
    this.draw(new Set());
    say("table-said", `${number(this.rows.size)} ${this.rows.size === 1 ? "row" : "rows"}${this.next ? ", there are more" : ""}; they are updated live.`);
  },
  changed(rows) {
    if (this.waiting) {
      this.waiting.push(...rows);
      return;
    }
    const last = [...this.rows.keys()].at(-1) ?? "";
    const touched = new Set();
    for (const row of rows) {
      if (!this.rows.has(row.id) && (this.next ? row.id > last : this.rows.size >= 500)) continue;
      if (row.value === null) this.rows.delete(row.id);
      else { this.rows.set(row.id, row); touched.add(row.id); }
    }
    this.rows = new Map([...this.rows].sort(([one], [other]) => (one < other ? -1 : 1)));
    this.draw(touched);
  },
  draw(touched) {
    const place = element("rows");
    if (!place) return;
    place.hidden = false;
    show(place, this.rows.size ? h("table", {},
      h("caption", { class: "hidden" }, `Rows of ${this.name}`),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Key"), h("th", { scope: "col" }, "Value"))),
      h("tbody", {}, [...this.rows.values()].map((row) => rowOf(row, touched.has(row.id)))))
      : h("p", { class: "empty" }, "No key begins with that."));
    element("more").hidden = !this.next;
  },
};

export const tables = tablesPage;

// ---- topics ---------------------------------------------------------------------------------------------------------

function topicList(fleet) {
  if (!fleet.topics.length) return h("p", { class: "empty" }, "The topics are not known yet.");
  return h("div", { class: "card wide" }, h("table", {},
    h("caption", { class: "hidden" }, "Topics"),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Topic"), ["Partitions", "Records", "Growth"].map((text) => h("th", { scope: "col", class: "number" }, text)))),
    h("tbody", {}, fleet.topics.map((topic) => h("tr", { "data-key": topic.topic },
      h("th", { scope: "row" }, h("a", { href: `#/topics/${encodeURIComponent(topic.topic)}` }, topic.topic)),
      h("td", { class: "number" }, topic.partitions), h("td", { class: "number", title: number(topic.records) }, compact(topic.records)),
      h("td", { class: "number" }, rate(topic.rate) || "–"))))));
}

function recordOf(record) {
  const headers = record.headers.length
    ? h("details", {}, h("summary", {}, `${record.headers.length} ${record.headers.length === 1 ? "header" : "headers"}`), h("dl", { class: "headers" }, record.headers.map((each) => [h("dt", {}, each.name), h("dd", {}, shown(each))])))
    : null;
  return h("tr", { "data-key": `${record.partition} ${record.offset}` }, h("td", {}, time(record.timestamp)),
    h("td", { class: "number" }, `${record.partition}:${record.offset}`), h("td", {}, shown(record.key)), h("td", {}, shown(record.value), headers));
}

export const topics = {
  title: "Topics",
  begin(place, name) {
    Object.assign(this, { name, records: null, looking: false });
    if (!name) {
      place.replaceChildren(h("div", { id: "topics" }));
      return;
    }
    place.replaceChildren(
      h("p", {}, h("a", { href: "#/topics" }, "All topics")),
      h("form", { class: "card form", onsubmit: (event) => { event.preventDefault(); this.look(); } },
        h("h2", {}, name),
        h("div", { class: "field" }, h("label", { for: "from" }, "Show"),
          h("select", { id: "from", onchange: () => this.fields() },
            h("option", { value: "last" }, "the last records"), h("option", { value: "offset" }, "from an offset"), h("option", { value: "since" }, "from a time"))),
        h("div", { id: "from-what", class: "field", hidden: true }, h("label", { for: "what", id: "what-label" }, "Offset"), h("input", { id: "what", autocomplete: "off" })),
        field("partition", "Partition", { type: "number", min: 0, placeholder: "all" }),
        field("limit", "How many", { type: "number", min: 1, max: 500, value: 50, required: true }),
        h("div", { class: "field check" }, h("label", { for: "follow" }, "Follow"), h("input", { id: "follow", type: "checkbox" })),
        h("button", { type: "submit", class: "main" }, "Show")),
      h("p", { id: "topic-said", role: "status", class: "small" }),
      h("div", { id: "records", hidden: true, ...wide("Records") }));
    this.look();
  },
  onFleet(fleet) {
    if (!this.name) {
      show(element("topics"), topicList(fleet));
      return;
    }
    const records = fleet.topics.find((topic) => topic.topic === this.name)?.records;
    if (records === this.records) return;
    this.records = records;
    if (element("follow").checked && !this.looking) this.look(); // one look at a time, for each opens a connection
  },
  fields() {
    const how = element("from").value;
    element("from-what").hidden = how === "last";
    element("follow").disabled = how !== "last";
    if (how !== "last") element("follow").checked = false;
    element("what-label").textContent = how === "since" ? "Time" : "Offset";
    const what = element("what");
    what.type = how === "since" ? "datetime-local" : "number";
    what.min = "0";
    what.required = how !== "last";
  },
  async look() {
    const how = element("from").value;
    const query = new URLSearchParams({ limit: element("limit").value });
    if (how === "offset") query.set("offset", element("what").value);
    if (how === "since") query.set("since", new Date(element("what").value).getTime());
    if (element("partition").value !== "") query.set("partition", element("partition").value);
    if (!element("follow").checked) say("topic-said", "Reading…");
    this.looking = true;
    try {
      const { records } = await get(`api/topics/${encodeURIComponent(this.name)}/records?${query}`);
      const place = element("records");
      if (!place) return;
      place.hidden = false;
      show(place, records.length ? h("table", {},
        h("caption", { class: "hidden" }, `Records of ${this.name}`),
        h("thead", {}, h("tr", {}, ["Time", "Place", "Key", "Value"].map((text) => h("th", { scope: "col" }, text)))),
        h("tbody", {}, records.map(recordOf))) : h("p", { class: "empty" }, "There are no records."));
      say("topic-said", `${records.length} ${records.length === 1 ? "record" : "records"}, ${how === "last" ? "the latest first" : "ordered by time"}; only committed records.`);
    } catch (error) {
      say("topic-said", error.message, true);
    } finally {
      this.looking = false;
    }
  },
};
