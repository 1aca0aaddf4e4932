// Elements, made and kept current. Text only ever becomes text: nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made[name] = value;
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(3)) {
    if (child !== null && child !== undefined && child !== false) made.append(child);
  }
  return made;
}

export const h = (tag, attributes, ...children) => filled(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);
// What may be broader than the screen is scrolled, by keyboard too.
export const wide = (name, more = "card") => ({ class: `${more} wide`, tabindex: "0", role: "region", "aria-label": name });
export const element = (id) => document.getElementById(id);

// What people have done to these must survive an update.
const KEPT = { DETAILS: ["open"], DIALOG: ["open"] };

function same(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName && one.id === other.id
    && one.dataset?.key === other.dataset?.key;
}

// Make `old` look like `target`, touching only what differs: focus, selection and scrolling stay where they are.
export function morph(old, target) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== target.data) old.data = target.data;
    return;
  }
  const kept = KEPT[old.nodeName] ?? [];
  for (const { name } of [...old.attributes]) {
    if (!target.hasAttribute(name) && !kept.includes(name)) old.removeAttribute(name);
  }
  for (const { name, value } of target.attributes) {
    if (old.getAttribute(name) !== value && !kept.includes(name)) old.setAttribute(name, value);
  }
  for (const event of ["onclick", "onchange", "onsubmit", "oninput", "onkeydown", "ontoggle"]) {
    if (old[event] !== target[event]) old[event] = target[event];
  }
  const coming = [...target.childNodes];
  const byKey = new Map([...old.children].filter((each) => each.dataset?.key).map((each) => [each.dataset.key, each]));
  coming.forEach((child, index) => {
    const there = old.childNodes[index];
    const mate = byKey.get(child.dataset?.key) ?? there;
    if (mate && same(mate, child)) {
      if (mate !== there) old.insertBefore(mate, there ?? null);
      morph(mate, child);
    } else {
      old.insertBefore(child, there ?? null);
      if (there && !there.dataset?.key && old.childNodes.length > coming.length) there.remove();
    }
  });
  while (old.childNodes.length > coming.length) old.lastChild.remove();
}

export function show(place, ...children) {
  const target = place.cloneNode(false);
  target.append(...children.flat(3).filter(Boolean));
  morph(place, target);
}

// ---- numbers and times as people read them --------------------------------------------------------------------------

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const number = (value) => (value === null || value === undefined ? "–" : whole.format(value));
export const compact = (value) => short.format(value);

export function rate(value) {
  if (value === null || value === undefined) return "";
  if (value < 0.05) return "0/s";
  return `${value < 10 ? value.toFixed(1) : compact(Math.round(value))}/s`;
}

export function ago(then, now) {
  if (!then) return "never";
  const seconds = Math.max(0, (now - then) / 1000);
  if (seconds < 2) return "now";
  if (seconds < 100) return `${Math.round(seconds)} s ago`;
  if (seconds < 6000) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} days ago`;
}

export function span(ms) {
  const seconds = ms / 1000;
  if (seconds < 100) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 6000) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

export function bytes(value) {
  if (value < 1024) return `${value} B`;
  const unit = Math.min(3, Math.floor(Math.log2(value) / 10));
  const scaled = value / 2 ** (10 * unit);
  return `${scaled < 10 ? scaled.toFixed(1) : Math.round(scaled)} ${["B", "KB", "MB", "GB"][unit]}`;
}

export function time(ms) {
  const at = new Date(ms);
  if (ms <= 0 || Number.isNaN(at.getTime())) return h("span", {}, "no time");
  const today = new Date().toDateString() === at.toDateString();
  return h("time", { datetime: at.toISOString(), title: at.toISOString() },
    today ? at.toLocaleTimeString("en-GB") : `${at.toLocaleDateString("en-CA")} ${at.toLocaleTimeString("en-GB")}`);
}

// A key or value as the service has decoded it.
export function shown(found) {
  if (!found || found.type === "null") return h("span", { class: "kind" }, "null");
  const value = found.value;
  const text = typeof value === "object" ? JSON.stringify(value, null, 1) : String(value);
  const plain = text.length < 80 ? text.replace(/\n\s*/g, " ") : text;
  const body = plain.length < 160 && !plain.includes("\n")
    ? h("code", {}, plain)
    : h("details", {}, h("summary", {}, h("code", {}, `${text.replace(/\n\s*/g, " ").slice(0, 72)}…`)), h("pre", { tabindex: "0" }, text));
  const note = found.problem ?? (found.cut ? `cut: ${number(found.cut)} bytes in all` : "");
  return h("span", { class: "shown" }, body, found.type !== "text" && h("span", { class: "kind" }, found.type),
    note && h("span", { class: "problem" }, note));
}

const STATES = { ready: "✓", recovering: "↻", starting: "…", failed: "✕", silent: "?", working: "✓",
  done: "✓", running: "↻", different: "≠", interrupted: "–", killed: "✕" };

export function state(name, count) {
  const sign = h("span", { "aria-hidden": "true" }, STATES[name] ?? "·");
  return h("span", { class: `state ${name}` }, sign, count === undefined ? ` ${name}` : ` ${count} ${name}`);
}
