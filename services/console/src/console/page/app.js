// Which page is shown, and the state that all pages get.

import { follow } from "./api.js";
import { tables, topics } from "./data.js";
import { element, h, show, time } from "./dom.js";
import { history } from "./history.js";
import { instances } from "./instances.js";
import { overview } from "./overview.js";
import { letters } from "./letters.js";
import { runs } from "./runs.js";
import { windows } from "./windows.js";

const PAGES = { fleet: overview, instances, tables, windows, letters, topics, runs, history };
let current = null;
let fleet = null;

function addressed() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  let argument = "";
  try { argument = decodeURIComponent(rest.join("/")); } catch { argument = ""; }
  return [name in PAGES ? name : "fleet", argument];
}

async function turn(focus) {
  const [name, argument] = addressed();
  current?.end?.();
  current = null;
  const page = PAGES[name];
  document.title = `${argument || page.title} · Streamtable console`;
  element("title").textContent = page.title;
  show(element("pages"), Object.entries(PAGES).map(([each, { title }]) => h("li", {}, h("a", { href: `#/${each}`, "aria-current": each === name ? "page" : null }, title))));
  const place = element("page");
  place.replaceChildren();
  const begun = page.begin(place, argument);
  current = page;
  if (focus) element("main").focus();
  window.scrollTo(0, 0);
  await begun;
  if (fleet && current === page) page.onFleet(fleet);
}

function connected(well, error) {
  const place = element("connection");
  place.className = well ? "well" : "lost";
  place.textContent = well ? "live" : `not connected${error?.message ? `: ${error.message}` : ""}`;
}

function unfold(open) {
  element("menu").setAttribute("aria-expanded", String(open));
  element("pages").classList.toggle("open", open);
}

element("menu").onclick = () => unfold(element("menu").getAttribute("aria-expanded") !== "true");
window.addEventListener("hashchange", () => { unfold(false); turn(true); });
window.matchMedia("(max-width: 700px)").addEventListener("change", () => { if (fleet) current?.onFleet(fleet); });
element("connection").textContent = "connecting";
turn(false);
follow("api/events", (kind, data) => {
  if (kind !== "fleet") return;
  fleet = data;
  current?.onFleet(fleet);
  element("connection").replaceChildren("live, ", time(data.now));
}, connected);
