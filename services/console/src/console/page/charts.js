// Small charts: one line, its latest value, and the highest of the time shown.

import { compact, h, number, s } from "./dom.js";

const [WIDTH, HEIGHT] = [150, 40];

export function chart(name, points, now, { span = 600_000, text = compact, label = `Lag of ${name} in the last ten minutes` } = {}) {
  const from = Math.max(now - span, Math.min(points[0]?.[0] ?? now, now - 60_000)); // what began lately fills the width
  const shown = points.filter(([at]) => at >= from);
  const top = Math.max(1, ...shown.map(([, value]) => value));
  const path = shown.map(([at, value], index) => {
    const x = ((at - from) / (now - from)) * WIDTH;
    const y = HEIGHT - 2 - (value / top) * (HEIGHT - 6);
    return `${index ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
  }).join("");
  const latest = shown.at(-1)?.[1];
  const first = shown.length ? ((shown[0][0] - from) / (now - from)) * WIDTH : 0;
  const last = shown.length ? ((shown.at(-1)[0] - from) / (now - from)) * WIDTH : 0;
  return h("figure", { class: "chart", "data-key": name },
    h("figcaption", {}, name, h("strong", {}, latest === undefined ? "–" : text(latest) || "0/s")),
    s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${label}: now ${number(latest)}, at most ${number(top)}`, preserveAspectRatio: "none" },
      s("path", { class: "base", d: `M0 ${HEIGHT - 2}H${WIDTH}` }),
      path && s("path", { class: "area", d: `${path}L${last.toFixed(1)} ${HEIGHT - 2}L${first.toFixed(1)} ${HEIGHT - 2}Z` }),
      path && s("path", { class: "line", d: path })),
    h("span", { class: "small" }, `at most ${text(Math.max(0, ...shown.map(([, value]) => value))) || "0/s"}`));
}
