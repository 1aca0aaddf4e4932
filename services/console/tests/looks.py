"""Checks of a page in a browser: the rules of axe, and the contrast of text in pictures."""

from importlib.metadata import distribution
from pathlib import Path

from services.console.tests.browser import Browser

# The engine of the axe checkers, out of one of their packages; it runs in the page, and returns the violations.
AXE = Path(str(distribution("axe-playwright-python").locate_file("axe_playwright_python/axe.min.js")))
VIOLATIONS = """
const rules = { 'color-contrast': { enabled: arguments[0] } };
return axe.run({ preload: false, resultTypes: ['violations'], rules }).then(({ violations }) =>
  violations.flatMap((rule) => rule.nodes.map((node) => `${rule.id}: ${node.html.slice(0, 200)} ${node.failureSummary}`)));
"""
# What axe leaves to people: text in pictures.
CONTRAST = """
const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
const rgba = (text) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
const light = ([r, g, b]) => { const f = (c) => { c /= 255; return c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4; }; return .2126 * f(r) + .7152 * f(g) + .0722 * f(b); };
const ground = (e) => { for (let at = e; at; at = at.parentElement) { const c = rgba(getComputedStyle(at).backgroundColor); if (c[3] > 250) return c; } return [255, 255, 255, 255]; };
const wrong = new Set();
for (const e of document.querySelectorAll('body *')) {
  const own = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
  if (!own || !e.checkVisibility() || e.disabled || e.closest('.hidden, .skip, option')) continue;
  const svg = e.ownerSVGElement;
  const style = getComputedStyle(e);
  const node = svg && e.closest('.node')?.querySelector('.body');
  const back = node ? rgba(getComputedStyle(node).fill) : ground(svg ? svg.parentElement : e);
  const [a, b] = [light(rgba(svg ? style.fill : style.color)), light(back)].sort((x, y) => y - x);
  const ratio = (a + .05) / (b + .05);
  if (ratio < 4.5) wrong.add(`${e.tagName}.${e.getAttribute('class')} "${e.textContent.trim().slice(0, 30)}" ${ratio.toFixed(2)}`);
}
return [...wrong];
"""


def violations(browser: Browser, *, contrast: bool = True) -> list[str]:
    """Return the violations of accessibility rules; `contrast`: also check the contrast of text, which takes long."""
    if not browser.run("return 'axe' in window"):
        browser.run(AXE.read_text(encoding="utf-8"))
    return [str(each) for each in browser.run(VIOLATIONS, contrast)]
