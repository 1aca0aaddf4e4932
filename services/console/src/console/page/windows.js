// Windowed tables as charts: the numbers of all keys, or of those with a prefix, by the start of their windows, as they change.

import { follow, get } from "./api.js";
import { compact, element, h, number, s, show, shown, time, wide } from "./dom.js";

const [PAGE, ROWS_MAX, BARS_MAX, WIDTH, HEIGHT] = [500, 5000, 60, 720, 180];
const [TABLES_MAX, CHANGES, CLOSED_MAX, LOOK_AGAIN_MS] = [4, 300, 5, 15_000];
let stop = null;

function end() {
  stop?.();
  stop = null;
}

const tableNames = (fleet) => [...new Set(fleet.instances.flatMap((each) => each.due.map((one) => one.topic)))].filter((name) => !name.endsWith("timers")).sort();

// Each windowed table, the one with the most open windows first.
function summaries(fleet) {
  const found = new Map();
  for (const each of fleet.instances) {
    for (const one of each.due.filter((due) => !due.topic.endsWith("timers"))) {
      const sum = found.get(one.topic) ?? found.set(one.topic, { name: one.topic, group: each.group, rows: 0, late: 0, watermark: Infinity }).get(one.topic);
      sum.rows += one.rows;
      sum.late += one.late;
      const time = each.event_times.find((event) => event.partition === one.partition);
      if (time) sum.watermark = Math.min(sum.watermark, time.watermark);
    }
  }
  return [...found.values()].sort((one, other) => other.rows - one.rows);
}

// Before a table is chosen: up to when the windows of each have closed.
function overview(found) {
  if (!found.length) return h("p", { class: "empty" }, "No process has reported a table of windows yet.");
  return h("div", wide("Windowed tables"), h("table", {}, h("caption", {}, "Windowed tables, the one with the most open windows first"),
    h("thead", {}, h("tr", {}, ["Table", "Group", "Windows closed up to"].map((text) => h("th", { scope: "col" }, text)), ["Open", "Late records"].map((text) => h("th", { scope: "col", class: "number" }, text)))),
    h("tbody", {}, found.map((each) => h("tr", { "data-key": each.name },
      h("th", { scope: "row" }, h("a", { href: `#/windows/${encodeURIComponent(each.name)}` }, each.name)), h("td", {}, each.group),
      h("td", {}, Number.isFinite(each.watermark) ? time(each.watermark) : "–"), h("td", { class: "number" }, number(each.rows)), h("td", { class: "number" }, number(each.late)))))));
}

const bytesOf = (digits) => Uint8Array.from(digits.match(/../g) ?? [], (pair) => parseInt(pair, 16));
const digitsOf = ({ type, value }) => (type === "hex" ? value : [...new TextEncoder().encode(String(value))].map((each) => each.toString(16).padStart(2, "0")).join(""));

// The last 8 bytes of a windowed key are the start of its window, as Kafka Streams writes them.
function startOf(row) {
  return row.id.length < 16 ? null : Number(BigInt.asIntN(64, BigInt(`0x${row.id.slice(-16)}`)));
}

function keyOf(row) {
  const digits = row.id.slice(0, -16);
  try { return new TextDecoder("utf-8", { fatal: true }).decode(bytesOf(digits)); } catch { return digits; }
}

// The rows of the windows that closed last, from the latest changes. Only starts are written: a window ends where another begins, at the latest.
function closedRows(table, records) {
  const newest = new Map();
  for (const { key, value } of records.filter((each) => each.key.type === "hex" || each.key.type === "text")) {
    const id = digitsOf(key);
    if (!newest.has(id)) newest.set(id, { id, value, table });
  }
  const rows = [...newest.values()].map((row) => ({ ...row, start: startOf(row) })).filter((row) => row.start !== null && row.value.type !== "null");
  const last = Math.max(...rows.map((row) => row.start).filter((start) => start <= table.watermark));
  return rows.filter((row) => row.start < last).sort((one, other) => other.start - one.start).slice(0, CLOSED_MAX);
}

function closedTable(rows) {
  return h("div", wide("The windows that closed last"), h("table", {}, h("caption", {}, "The windows that closed last"),
    h("thead", {}, h("tr", {}, ["Table", "Window begins", "Key", "Value"].map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {}, rows.map((row) => h("tr", { "data-key": `${row.table.name} ${row.id}` },
      h("th", { scope: "row" }, h("a", { href: `#/windows/${encodeURIComponent(row.table.name)}` }, row.table.name)),
      h("td", {}, time(row.start)), h("td", {}, h("code", {}, keyOf(row))), h("td", {}, shown(row.value)))))),
  h("p", { class: "small" }, "They are among the latest changes of each table. A window counts as closed once event time has reached a later one; records within its grace may still change it."));
}

function sums(rows) {
  const found = new Map();
  for (const row of rows.values()) {
    const start = startOf(row);
    const amount = Number(row.value?.value);
    if (start !== null) found.set(start, (found.get(start) ?? 0) + (Number.isFinite(amount) ? amount : 1));
  }
  return [...found].sort(([one], [other]) => one - other).slice(-BARS_MAX);
}

function bars(name, windows) {
  const top = Math.max(1, ...windows.map(([, sum]) => sum));
  const step = WIDTH / Math.max(windows.length, 12);
  const last = windows.at(-1)[1];
  return s("svg", { class: "bars", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${name}: ${windows.length} windows, the last with ${number(last)}, at most ${number(top)}` },
    s("path", { class: "base", d: `M0 ${HEIGHT - 1}H${WIDTH}` }),
    windows.map(([, sum], index) => {
      const height = Math.max(1, (sum / top) * (HEIGHT - 8));
      return s("rect", { class: "bar", x: (index * step + 1).toFixed(1), y: (HEIGHT - 1 - height).toFixed(1), width: (step - 2).toFixed(1), height: height.toFixed(1) });
    }));
}

export const windows = {
  title: "Windows",
  begin(place, name) {
    end();
    this.name = name;
    this.names = null;
    this.looked = -Infinity;
    [this.rows, this.more, this.waiting] = [new Map(), false, null];
    place.replaceChildren(
      h("form", { class: "card form", onsubmit: (event) => { event.preventDefault(); this.look(); } },
        h("div", { class: "field" }, h("label", { for: "windowed" }, "Windowed table"),
          h("select", { id: "windowed", onchange: (event) => { location.hash = `#/windows/${encodeURIComponent(event.target.value)}`; } })),
        h("div", { class: "field" }, h("label", { for: "of-key" }, "Key begins with"), h("input", { id: "of-key", type: "search", maxlength: 200, autocomplete: "off", placeholder: "all keys" })),
        h("button", { type: "submit", class: "main" }, "Search")),
      h("p", { id: "windows-said", role: "status", class: "small" }, name ? "" : "Choose a windowed table to see its latest windows as a chart."),
      ...(name ? [] : [h("div", { id: "closed-windows" }), h("div", { id: "windowed-tables" })]),
      h("div", { id: "windows" }));
    if (name) this.look();
  },
  onFleet(fleet) {
    const names = tableNames(fleet);
    if (!this.name) this.summarize(summaries(fleet), fleet.now);
    if (JSON.stringify(names) === JSON.stringify(this.names)) return;
    this.names = names;
    element("windowed").replaceChildren(...[...(names.includes(this.name) ? [] : [this.name || ""]), ...names].map((each) =>
      h("option", { value: each, selected: each === this.name }, each || "Choose one")));
  },
  end,
  async summarize(found, now) {
    show(element("windowed-tables"), overview(found));
    if (now - this.looked < LOOK_AGAIN_MS) return;
    this.looked = now;
    const looks = found.filter((each) => Number.isFinite(each.watermark)).slice(0, TABLES_MAX).map(async (each) => {
      try { return closedRows(each, (await get(`api/topics/${encodeURIComponent(each.name)}/records?limit=${CHANGES}`)).records); } catch (error) { this.say(`${each.name}: ${error.message}`, true); return []; }
    });
    const rows = (await Promise.all(looks)).flat();
    if (!this.name && element("closed-windows")) show(element("closed-windows"), rows.length > 0 && closedTable(rows));
  },
  // Changes are followed first and the rows asked for then, so that none is missed in between; nor after a lost connection.
  look() {
    if (!this.name) return;
    end();
    const [address, prefix] = [`api/tables/${encodeURIComponent(this.name)}`, element("of-key").value];
    this.say("Loading…");
    stop = follow(`${address}/events?${new URLSearchParams({ prefix })}`, (kind, data) => {
      if (kind === "missed") this.load(address, prefix);
      else if (kind === "rows") this.changed(data.rows);
    }, (well, error) => {
      if (well) this.load(address, prefix);
      else if (error) this.say(error.message, true);
    });
  },
  async load(address, prefix) {
    const [rows, waiting] = [new Map(), []];
    this.waiting = waiting;
    try {
      let after = "";
      do {
        const found = await get(`${address}/rows?${new URLSearchParams({ limit: PAGE, prefix, ...(after && { after }) })}`);
        for (const row of found.rows) rows.set(row.id, row);
        after = found.next;
      } while (after && rows.size < ROWS_MAX);
      if (this.waiting !== waiting || !element("windows")) return;
      [this.rows, this.more, this.waiting] = [rows, Boolean(after), null];
      this.say(after ? `The first ${number(rows.size)} rows; enter the beginning of a key to see fewer keys.` : `${number(rows.size)} rows; they are updated live.`);
      this.changed(waiting);
    } catch (error) {
      if (this.waiting === waiting) this.say(error.message, true);
    }
  },
  changed(rows) {
    if (this.waiting) {
      this.waiting.push(...rows);
      return;
    }
    for (const row of rows) {
      if (row.value === null) this.rows.delete(row.id);
      else if (!this.more || this.rows.has(row.id)) this.rows.set(row.id, row);
    }
    this.draw();
  },
  say(text, wrong = false) {
    const place = element("windows-said");
    if (!place) return;
    place.textContent = text;
    place.className = wrong ? "problem" : "small";
  },
  draw() {
    const place = element("windows");
    if (!place) return;
    const found = sums(this.rows);
    show(place, found.length ? h("section", { class: "card" },
      bars(this.name, found),
      h("div", wide(`Windows of ${this.name}`, "latest"), h("table", {},
        h("caption", {}, "The latest windows"),
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Begins"), h("th", { scope: "col", class: "number" }, "All keys together"))),
        h("tbody", {}, found.slice(-10).reverse().map(([start, sum]) => h("tr", { "data-key": start }, h("th", { scope: "row" }, time(start)), h("td", { class: "number" }, sum < 1e6 ? number(sum) : compact(sum))))))))
      : h("p", { class: "empty" }, "There are no windows yet."));
  },
};
