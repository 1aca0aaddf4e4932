// The records that groups could not process, with their errors, and how to send them again.

import { get, post } from "./api.js";
import { element, h, number, show, shown, time } from "./dom.js";

function say(text, wrong = false) {
  const place = element("letters-said");
  if (!place) return;
  place.textContent = text;
  place.className = wrong ? "problem" : "small";
}

const raw = (data) => h("code", { class: "raw" }, data === null ? "null" : data || "empty");

export const letters = {
  title: "Dead letters",
  begin(place, group) {
    this.group = group;
    this.found = [];
    this.complete = true;
    this.fleet = null;
    this.chosen = new Set();
    if (!group) {
      place.replaceChildren(h("div", { id: "letter-groups" }));
      return;
    }
    place.replaceChildren(
      h("p", {}, h("a", { href: "#/letters" }, "All groups")),
      h("div", { class: "card form" }, h("h2", {}, group),
        h("button", { type: "button", onclick: () => this.look() }, "Refresh"),
        h("button", { id: "choose-all", type: "button", hidden: true, onclick: () => this.choose() }, "Choose all that were not sent again"),
        h("button", { id: "replay", type: "button", class: "main", hidden: true, onclick: () => this.replay() }, "Send again")),
      h("p", { id: "letters-said", role: "status", class: "small" }, "Reading…"),
      h("div", { id: "letters" }));
    this.look();
  },
  onFleet(fleet) {
    const first = this.fleet === null;
    this.fleet = fleet;
    if (!this.group) show(element("letter-groups"), this.groups(fleet));
    else if (first && this.found.length) this.draw();
  },
  groups(fleet) {
    const groups = fleet.graph.nodes.filter((node) => node.kind === "group");
    if (!groups.length) return h("p", { class: "empty" }, "No group is known yet.");
    const there = new Map(fleet.topics.map((topic) => [topic.topic, topic]));
    return h("div", { class: "card wide" }, h("table", {}, h("caption", { class: "hidden" }, "Groups and their dead letters"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Group"), ["Since the processes started", "Records in the topic, about"].map((text) => h("th", { scope: "col", class: "number" }, text)))),
      h("tbody", {}, groups.map((node) => h("tr", { "data-key": node.label },
        h("th", { scope: "row" }, h("a", { href: `#/letters/${encodeURIComponent(node.label)}` }, node.label)),
        h("td", { class: "number" }, number(node.dead_letters)),
        h("td", { class: "number" }, number(there.get(`${node.label}-dead-letters`)?.records)))))));
  },
  async look() {
    try {
      const { letters, complete } = await get(`api/letters/${encodeURIComponent(this.group)}?limit=200`);
      Object.assign(this, { found: letters, complete });
      const more = complete ? "" : " There may be others, and some may have been sent again: not all records were read.";
      this.chosen = new Set();
      const open = this.found.filter((each) => !each.replayed).length;
      say(this.found.length ? `${number(this.found.length)} dead letters, the latest first; ${number(open)} of them were not sent again yet.${more}` : more);
      this.draw();
    } catch (error) {
      say(error.message, true);
    }
  },
  draw() {
    const place = element("letters");
    if (!place) return;
    const actions = this.fleet?.actions ?? false;
    show(place, this.found.length ? this.found.map((each) => this.letter(each, actions)) : h("p", { class: "empty" }, this.complete ? "This group has no dead letters." : "No dead letters were read."));
    element("choose-all").hidden = !actions || !this.found.some((each) => !each.replayed);
    const button = element("replay");
    button.hidden = !actions || !this.found.length;
    button.disabled = !this.chosen.size;
    button.textContent = this.chosen.size ? `Send ${this.chosen.size} again` : "Send again: choose letters";
  },
  choose() {
    this.chosen = new Set(this.found.filter((each) => !each.replayed).map((each) => each.letter));
    for (const box of document.querySelectorAll("#letters input")) box.checked = this.chosen.has(box.value);
    this.draw();
  },
  letter(each, actions) {
    const choose = actions && h("input", {
      type: "checkbox", value: each.letter, "aria-label": `Choose letter ${each.letter}`, onchange: (event) => {
        if (event.target.checked) this.chosen.add(each.letter); else this.chosen.delete(each.letter);
        this.draw();
      },
    });
    const origin = each.origin ? `${each.origin.topic} ${each.origin.partition}:${each.origin.offset}` : "unknown";
    return h("article", { class: "card letter", "data-key": each.letter },
      h("h3", {}, choose, h("span", {}, each.error || "Unknown error"), h("span", { class: "small" }, each.letter), time(each.time),
        each.replayed ? h("span", { class: "badge" }, "sent again ", time(each.replayed)) : null),
      h("p", {}, each.message || "No reason was given."),
      h("dl", { class: "facts" },
        h("div", {}, h("dt", {}, "From"), h("dd", {}, origin)), h("div", {}, h("dt", {}, "Attempt"), h("dd", {}, number(each.attempt))),
        h("div", {}, h("dt", {}, "Key"), h("dd", {}, shown(each.key))), h("div", {}, h("dt", {}, "Value"), h("dd", {}, shown(each.value)))),
      h("details", {}, h("summary", {}, "Bytes in hexadecimal digits"), h("p", {}, "Key ", raw(each.raw.key)), h("p", {}, "Value ", raw(each.raw.value)),
        each.value_omitted_bytes === 0 ? h("p", {}, "The headers were too large for the dead-letter topic. They are in the record that the letter came from.") : null,
        each.value_omitted_bytes ? h("p", {}, `The value of ${number(each.value_omitted_bytes)} bytes was too large for the dead-letter topic. It is in the record that the letter came from.`) : null));
  },
  async replay() {
    const names = [...this.chosen];
    const before = this.found.some((each) => each.replayed && this.chosen.has(each.letter));
    const question = before ? "Some of these letters were sent again before. Send all of them once more?" : `Send ${names.length} ${names.length === 1 ? "letter" : "letters"} to ${this.group} again?`;
    if (!window.confirm(question)) return;
    try {
      const { sent, rows } = await post(`api/letters/${encodeURIComponent(this.group)}/replay`, { letters: names, again: before });
      await this.look();
      const left = rows.length ? ` ${rows.length} cannot be sent again, because they hold a timer or another row that fell due, and no record of an input.` : "";
      say(`${number(sent.length)} ${sent.length === 1 ? "letter was" : "letters were"} sent to ${this.group} again.${left}`);
      for (const box of document.querySelectorAll("#letters input")) box.checked = false;
    } catch (error) {
      say(error.message, true);
    }
  },
};
