"""The page over recorded fleets in a real Chromium: broken ones, a large one, and one that is well. No broker is needed."""

import sys
from collections.abc import Iterator

import pytest
from services.console.tests.browser import ENTER, TAB, Browser, chromium, missing
from services.console.tests.looks import violations
from services.console.tests.recorded import (
    Pages,
    Recording,
    aborting,
    calling,
    crashed,
    large,
    overloaded,
    pages,
    shop,
)
from tests.costs import slowness

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"no browser: {missing()}"),
    pytest.mark.skipif(sys.platform != "linux", reason="the browser is started as on Linux"),
    pytest.mark.timeout(300),
]
FLEETS = {"well": shop, "aborting": aborting, "overloaded": overloaded, "crashed": crashed}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def site() -> Iterator[Pages]:
    with pages() as found:
        yield found


def show(
    browser: Browser,
    site: Pages,
    recording: Recording,
    part: str = "fleet",
    width: int = 1360,
    *,
    dark: bool = False,
) -> None:
    """Open a part of the console over a recording."""
    browser.look(width=width, height=844 if width < 700 else 900, dark=dark, phone=width < 700)
    site.play(recording)
    browser.open("about:blank")
    browser.open(f"{site.url}/#/{part}")
    browser.until_text("live", selector="#connection")


def first_screen(browser: Browser) -> str:
    """Return the text of the findings and of the graph that is visible without scrolling."""
    script = """
    return [...document.querySelectorAll('#findings li, #findings p, svg.graph text')].filter((e) => {
      const { top, bottom } = e.getBoundingClientRect(); return e.checkVisibility() && top >= 0 && bottom <= innerHeight;
    }).map((e) => e.textContent).join('\\n')"""
    return str(browser.run(script))


@pytest.mark.parametrize("width", [1360, 390], ids=["desktop", "phone"])
@pytest.mark.parametrize(
    ("fleet", "said"),
    [
        ("aborting", ["Problem", "inventory", "aborted 32 commits in 7.9 min", "What to do", "since"]),
        ("overloaded", ["Warning", "click-count", "lag grows, 0 to 32000", "start more processes"]),
        ("crashed", ["Problem", "user-status", "RecordTooLarge user-clicks 3 91822", "machine-2", "5 min"]),
        ("well", ["All is well"]),
    ],
)
def test_the_first_screen_says_what_is_wrong(
    browser: Browser, site: Pages, fleet: str, said: list[str], width: int
) -> None:
    show(browser, site, Recording(FLEETS[fleet]()), width=width)
    browser.until_text(said[0], selector="#findings")
    seen = first_screen(browser)
    assert [each for each in said if each not in seen] == []


def test_a_flow_is_one_box_that_opens_by_keyboard_and_closes_again(browser: Browser, site: Pages) -> None:
    show(browser, site, Recording(shop()))
    browser.until_text("inventory", selector="svg.graph")
    assert "inventory-by-product" not in browser.text("svg.graph")
    assert "inventory-stock" in browser.text("svg.graph"), "a view shows it"
    browser.run("document.querySelector('svg.graph [data-flow]').focus()")
    browser.press(ENTER)
    browser.until_text(
        "inventory-by-product", ["inventory", "categorized", "subscriptions"][0], selector="svg.graph"
    )
    assert browser.run("return document.activeElement.getAttribute('aria-expanded')") == "true"
    assert violations(browser) == []
    browser.press(ENTER)
    browser.until(lambda: "inventory-by-product" not in browser.text("svg.graph"))
    assert browser.run("return document.activeElement.dataset.flow") == "inventory"


def test_a_problem_in_the_graph_leads_to_its_explanation(browser: Browser, site: Pages) -> None:
    show(browser, site, Recording(aborting()))
    browser.until_text("aborted 32 commits", selector="svg.graph")
    browser.run("document.querySelector('svg.graph .bad a.why').focus()")
    browser.press(ENTER)
    browser.until(lambda: browser.run("return document.activeElement.matches('.finding')"))
    assert "commit aborted" in browser.run("return document.activeElement.innerText")


def test_arrows_without_traffic_carry_no_text_and_more_traffic_makes_them_wider(
    browser: Browser, site: Pages
) -> None:
    show(browser, site, Recording(aborting()))
    browser.until_text("13/s", selector="svg.graph")
    assert "0/s" not in browser.run(
        "return [...document.querySelectorAll('svg.graph .rate')].map(e => e.textContent)"
    )
    widths = "const w = (t) => Number([...document.querySelectorAll('svg.graph .rate')].find(e => e.textContent === t).previousSibling.getAttribute('stroke-width')); return [w('13/s'), w('95/s'), w('240/s')]"
    assert browser.run(widths) == sorted(browser.run(widths))
    assert browser.run("return document.querySelectorAll('svg.graph .arrow:not(.moving)').length") > 2


def test_a_kind_of_node_that_is_not_known_is_drawn_with_its_name(browser: Browser, site: Pages) -> None:
    show(browser, site, Recording(shop()))
    browser.until_text("inventory", selector="svg.graph")
    script = """
    return Promise.all([import('/graph.js'), fetch('/api/fleet').then((answer) => answer.json())]).then(([graph, fleet]) => {
      fleet.graph.nodes.push({ id: 'api payments', kind: 'pipe', label: 'payments.example', detail: 'POST', flow: null });
      fleet.graph.edges.push({ source: 'group user-status', target: 'api payments', how: 'call', rate: 2 });
      const place = document.createElement('div'); document.body.append(place);
      graph.showGraph(place, fleet, new Set(), () => {}); const found = place.textContent; place.remove(); return found; })"""
    found = browser.run(script)
    assert "payments.example" in found
    assert "pipe · POST" in found


UPDATES = 6
UPDATE = """
return Promise.all([import('/overview.js'), import('/instances.js'), fetch('/api/fleet').then((answer) => answer.json())]).then(([one, two, fleet]) => {
  const part = location.hash.endsWith('instances') ? two.instances : one.overview;
  for (let turn = 1; turn <= arguments[0]; turn += 1) {
    fleet.now += 1000;
    for (const edge of fleet.graph.edges) edge.rate = (edge.rate ?? 0) + turn;
    for (const each of fleet.instances) { each.commits += turn; each.lag += turn; for (const input of each.inputs) input.lag += turn; }
    part.onFleet(fleet);
    document.body.offsetHeight; // what it causes in style and layout
  } });
"""


@pytest.mark.parametrize("part", ["fleet", "instances"])
def test_two_hundred_processes_and_five_hundred_topics_are_shown_in_a_second_and_updated_in_a_tenth(
    browser: Browser, site: Pages, part: str
) -> None:
    recording = Recording(large(), steps=3)
    fleet = recording.document("/api/fleet")
    assert (len(fleet["instances"]), len(fleet["topics"])) == (200, 500)
    show(browser, site, recording, part)
    browser.until_text("team-9-stage-3")
    first = browser.processor_seconds()  # each opening has a thread of its own
    browser.run(UPDATE, UPDATES)
    updates = browser.processor_seconds() - first
    slower = slowness()  # than the machine of these limits
    assert first < 1.0 * slower, first
    assert updates / UPDATES < 0.1 * slower, updates


def test_processes_are_filtered_and_sorted(browser: Browser, site: Pages) -> None:
    show(browser, site, Recording(crashed()), "instances")
    browser.until_text("15 of 15 processes", selector="#instances")
    browser.run("document.getElementById('process-filter').focus()")
    browser.press(*"silent")
    browser.until_text("5 of 15 processes", "worker-2", selector="#instances")
    assert "worker-1" not in browser.text("#instances")
    browser.run("const e = document.getElementById('process-filter'); e.value = ''; e.oninput()")
    browser.run(
        "const e = document.getElementById('process-sort'); e.value = 'state'; e.onchange({ target: e })"
    )
    browser.until(
        lambda: browser.run("return document.querySelector('#instances tr.group').innerText").startswith(
            "user-status"
        )
    )


def test_a_call_that_fails_is_a_box_behind_its_group_that_says_so(browser: Browser, site: Pages) -> None:
    show(browser, site, Recording(calling()), "fleet")
    browser.until_text(
        "place", "48 pending", "oldest 5 min", "attempts failed in 4.6 min", selector="svg.graph"
    )
    assert browser.run("return document.querySelectorAll('svg.graph .node.call.warned').length") == 1
    assert (
        browser.run("return document.querySelector('.node.call a').getAttribute('href')")
        == "#/instances/inventory-ordering"
    )


def test_partitions_with_equal_values_are_one_line(browser: Browser, site: Pages) -> None:
    show(browser, site, Recording(shop()), "instances/inventory-by-product")
    browser.until_text("12 partitions", "working, no lag", selector="#instances")
    assert browser.run("return document.querySelector('.event-times tbody').rows.length") == 1
    assert "4,080" in browser.text(".event-times"), "the open windows of all partitions"


def test_repeated_events_are_one_line_and_events_can_be_filtered(browser: Browser, site: Pages) -> None:
    show(browser, site, Recording(aborting()), "history")
    browser.until_text(
        "inventory, 2 processes: aborted 64 commits in 8 min: records were not acknowledged in 4 s",
        selector="#history",
    )
    browser.run(
        "const e = document.getElementById('history-kind'); e.value = 'aborts'; e.onchange({ target: e })"
    )
    browser.until(lambda: "started" not in browser.text("#history"))
    assert browser.run("return document.querySelectorAll('#history li').length") == 2
    browser.run(
        "const e = document.getElementById('history-group'); e.value = 'inventory'; e.onchange({ target: e })"
    )
    browser.until(lambda: browser.run("return document.querySelectorAll('#history li').length") == 1)
    browser.until_text("Records in", "Lag", "Commit time", selector="#hour")
    assert browser.run("return document.querySelectorAll('#hour svg').length") == 3


def test_tables_and_windows_show_the_largest_before_a_choice(browser: Browser, site: Pages) -> None:
    show(browser, site, Recording(shop()), "tables")
    browser.until_text("Tables, the largest first", "click-count-table", selector="#largest")
    records = browser.run(
        "return [...document.querySelectorAll('#largest td:nth-child(4)')].map(e => Number(e.title.replaceAll(',', '')))"
    )
    assert records == sorted(records, reverse=True)
    show(browser, site, Recording(shop()), "windows")
    browser.until_text(
        "Windows closed up to", "inventory-by-product-hours", "8,160", selector="#windowed-tables"
    )


def test_the_menu_of_a_phone_is_folded_and_opens_by_keyboard(browser: Browser, site: Pages) -> None:
    show(browser, site, Recording(shop()), width=390)
    assert not browser.run("return document.getElementById('pages').checkVisibility()")
    browser.run("document.getElementById('menu').focus()")
    browser.press(ENTER)
    browser.until_text("History", selector="#pages")
    assert violations(browser, contrast=False) == []
    browser.run("document.querySelector('#pages a[href=\"#/instances\"]').focus()")
    browser.press(ENTER)
    browser.until_text("Instances", selector="h1")
    assert not browser.run("return document.getElementById('pages').checkVisibility()")


def tabbed_to(browser: Browser, script: str, most: int = 60) -> None:
    """Press Tab until the focused element is the one, and check that each on the way shows that it is focused."""
    for _ in range(most):
        browser.press(TAB)
        found, visible = browser.run(
            f"const e = document.activeElement; return [Boolean({script}), e.matches(':focus-visible')]"
        )
        assert visible, browser.run("return document.activeElement.outerHTML.slice(0, 200)")
        if found:
            return
    raise AssertionError(f"not reached by {most} times Tab: {script}")


def test_tab_and_enter_alone_reach_menu_findings_the_folded_graph_and_filters(
    browser: Browser, site: Pages
) -> None:
    show(browser, site, Recording(crashed()))
    browser.until_text("Problem", "inventory", selector="#main")
    tabbed_to(browser, "e.matches('.finding summary')")
    browser.press(ENTER)
    browser.until(lambda: browser.run("return document.activeElement.parentElement.open"))
    tabbed_to(browser, "e.matches('svg.graph [data-flow]')")
    browser.press(ENTER)
    browser.until_text("inventory-by-product", selector="svg.graph")
    assert browser.run("return document.activeElement.getAttribute('aria-expanded')") == "true"
    browser.press(ENTER)
    browser.until(lambda: "inventory-by-product" not in browser.text("svg.graph"))

    show(browser, site, Recording(crashed()))
    tabbed_to(browser, "e.getAttribute('href') === '#/instances' && e.closest('#pages')")
    browser.press(ENTER)
    browser.until_text("15 of 15 processes", selector="#instances")
    tabbed_to(browser, "e.id === 'process-filter'")
    browser.press(*"silent")
    browser.until_text("5 of 15 processes", selector="#instances")

    show(browser, site, Recording(crashed()), "history")
    browser.until_text("started", selector="#history")
    tabbed_to(browser, "e.id === 'history-kind'")
    browser.press(*"silent")  # the key of a letter chooses the option that begins with it
    browser.until(lambda: "started" not in browser.text("#history"))
    assert "has not reported" in browser.text("#history")
