"""The page in a real Chromium: every part with live data, with a keyboard only, on a phone, in the light and in the dark."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from services.console.tests.browser import ATTACKER, ENTER, SPACE, TAB, Browser, chromium, missing
from services.console.tests.looks import CONTRAST, violations
from services.console.tests.world import KEY, World, run_with, status_with

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(bool(missing()), reason=f"no browser: {missing()}"),
    pytest.mark.skipif(sys.platform != "linux", reason="the browser is started as on Linux"),
    pytest.mark.timeout(300),
]


RUNS = [
    run_with(
        run="etl-1", job="etl", state="running", stage="silver", stages_done=1, finished_at=0, differences=-1
    ),
    run_with(
        run="rebuild-1", job="rebuild", as_group="count-2", state="failed", error="RetryLater: no answer"
    ),
    run_with(
        run="audit-1",
        started_at=1_790_000_000_000,
        state="different",
        differences=2,
        keys=[
            {"partition": 3, "key": "alice", "difference": "different", "expected": "3", "live": "2"},
            {"partition": 1, "key": "zoe", "difference": "extra", "expected": "", "live": "1"},
        ],
        inputs=[{"topic": "user-clicks", "partition": 0, "start": 5, "end": 1009}],
        summary="2 of 40 rows are not as the inputs say",
        report="lake/reports/audit-1.json",
    ),
]


@pytest.fixture(scope="module")
def browser(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("browser")) as found:
        found.open(world.sign_in_url)
        yield found


@pytest.fixture(autouse=True, scope="module")
def clicked(world: World) -> None:
    world.emit("alice", "bob", "alice")
    world.poison("eve", b"<img src=x onerror=alert(1)>")
    for run in RUNS:
        world.tell_run(run)
    world.count_in_minute("alice", 0, 3)
    world.count_in_minute("bob", 0, 4)
    world.count_in_minute("alice", 1, 2)
    group = world.windows.name.removesuffix("-minutes")
    timed = status_with(
        role="processor",
        group=group,
        instance="timed",
        at=time.time_ns() // 1_000_000,
        partitions=[{"partition": 3, "state": "working", "remaining": 0, "total": 0}],
        event_times=[{"partition": 3, "watermark": 1_790_000_050_000, "due_behind_ms": 5000}],
        due=[{"topic": world.windows.name, "partition": 3, "rows": 1234, "late": 2}],
    )
    world.tell(f"{group}/processor/timed", timed)
    rows = f"/api/tables/{world.group.table.name}/rows"
    world.until(rows, lambda answer: len(answer["rows"]) == 2)
    world.until("/api/fleet", lambda answer: any(each["dead_letters"] for each in answer["instances"]))


def show(browser: Browser, world: World, *parts: str) -> None:
    """Open a part of the console again."""
    browser.open("about:blank")
    browser.open(f"{world.http.base_url}/#/{'/'.join(quote(part) for part in parts)}")
    browser.until_text("live", selector="#connection")


def parts_of(world: World) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Each part of the console with what it must say."""
    group = world.group.name
    return {
        "fleet": (("fleet",), ("Processes", group, world.clicks.name)),
        "instances": (
            ("instances",),
            (
                group,
                "worker",
                "ready",
                "Last commit",
                "processes in",
            ),
        ),
        "instance": (
            ("instances", group),
            ("All processes", f"{world.clicks.name}", "4 partitions", "no lag"),
        ),
        "event time": (
            ("instances", world.windows.name.removesuffix("-minutes")),
            ("All processes", "Watermark", "Open in minutes", "1,234"),
        ),
        "table": (("tables", world.group.table.name), ("alice", "bob", "rows")),
        "windows": (("windows", world.windows.name), ("The latest windows", "3 rows", "7")),
        "closed windows": (("windows",), ("The windows that closed last", "alice", "bob")),
        "letter groups": (("letters",), (group,)),
        "letters": (("letters", group), ("DeserializationError", world.clicks.name, "not sent again yet")),
        "topics": (("topics",), (world.clicks.name, "Growth")),
        "records": (("topics", world.clicks.name), ("eve", "UserClick", "records")),
        "runs": (("runs",), ("rebuild", "RetryLater: no answer", "2 of 40 rows")),
        "run": (("runs", "audit-1"), ("alice", "extra", "user-clicks", "1,004", "2 of 40 rows")),
        "history": (("history",), ("History",)),
    }


# Dark and light, wide and narrow: each is looked at, and all four together in the long form.
LOOKS = [(False, 1360), (True, 390)]
LOOKS_LONG = [(True, 1360), (False, 390)]
PARTS = [
    "fleet",
    "instances",
    "instance",
    "event time",
    "table",
    "windows",
    "closed windows",
    "letter groups",
    "letters",
    "topics",
    "records",
    "runs",
    "run",
    "history",
]


@pytest.mark.parametrize(
    "looks",
    [LOOKS, pytest.param(LOOKS_LONG, marks=pytest.mark.faults_long("the same parts once more"))],
    ids=["two looks", "two others"],
)
@pytest.mark.parametrize("part", PARTS)
def test_every_part_shows_live_data_and_is_accessible(
    world: World, browser: Browser, part: str, looks: list[tuple[bool, int]]
) -> None:
    place, texts = parts_of(world)[part]
    browser.complaints()
    browser.requested()
    browser.look(width=1360, height=900, dark=False)
    show(browser, world, *place)
    shorter = [text[:25] for text in texts]  # the graph cuts long names
    browser.until_text(*shorter)
    for dark, width in looks:
        browser.look(width=width, height=844, dark=dark, phone=width < 700)
        browser.until_text(*[text[:17] for text in texts])
        # The next line finds the same of texts, and of text in pictures, in a tenth of the time.
        assert violations(browser, contrast=looks is LOOKS_LONG) == []
        assert browser.run(CONTRAST) == []
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth"), "it scrolls sideways"
    assert browser.complaints() == []
    own = urlsplit(str(world.http.base_url)).netloc
    asked = {urlsplit(each) for each in browser.requested()}
    assert {each.netloc for each in asked if each.scheme in {"http", "https"}} == {own}


def test_what_a_record_says_is_never_taken_for_html(world: World, browser: Browser) -> None:
    for place in (("topics", world.clicks.name), ("letters", world.group.name)):
        show(browser, world, *place)
        browser.until_text("<img src=x onerror=alert(1)>")
        assert browser.run("return document.querySelectorAll('#page img').length") == 0


def test_the_whole_console_can_be_reached_by_keyboard(world: World, browser: Browser) -> None:
    browser.look(width=1360, height=900, dark=False)
    show(browser, world, "fleet")
    browser.until_text(world.group.name[:25], selector="svg.graph")
    reached = []
    for _ in range(30):
        browser.press(TAB)
        name, visible = browser.run(
            "const e = document.activeElement; return [(e.innerText || e.textContent || '').trim(), e.matches(':focus-visible')]"
        )
        assert visible, name
        reached.append(name)
        if name == "The graph as a list":
            break
    assert reached[:9] == [
        "Skip to the content",
        "Fleet",
        "Instances",
        "Tables",
        "Windows",
        "Dead letters",
        "Topics",
        "Runs",
        "History",
    ]
    assert any(world.group.name[:20] in each for each in reached), "no node of the graph"
    browser.press(ENTER)
    browser.until_text("Reads", "Writes", world.clicks.name, selector="#outline")


def test_the_keyboard_turns_pages_and_focus_follows(world: World, browser: Browser) -> None:
    show(browser, world, "fleet")
    browser.press(TAB, TAB, TAB, ENTER)
    browser.until_text("Instances", selector="h1")
    assert browser.run("return document.activeElement.id") == "main"


def test_focus_stays_where_it_is_while_the_page_changes(world: World, browser: Browser) -> None:
    show(browser, world, "instances", world.group.name)
    browser.until_text("worker")
    browser.run("document.querySelector('#instances a').focus()")
    at = browser.text("#connection")
    browser.until(lambda: browser.text("#connection") != at)
    assert browser.run("return document.activeElement.textContent") == "All processes"


def test_a_row_changes_on_the_page_when_it_changes_in_the_table(world: World, browser: Browser) -> None:
    show(browser, world, "tables", world.group.table.name)
    browser.until_text("alice", "they are updated live", selector="main")
    before = count_of_bob(browser)
    world.emit("bob")
    browser.until(lambda: count_of_bob(browser) > before)


def count_of_bob(browser: Browser) -> int:
    """Return the number that the page shows in the row of bob."""
    script = "return [...document.querySelectorAll('#rows tr')].find(e => e.innerText.includes('bob')).querySelector('td code').textContent"
    return int(browser.run(script))


def test_pages_that_were_left_hold_no_connections_and_are_up_to_date_when_shown_again(
    world: World, browser: Browser
) -> None:
    # A browser opens six connections to a server, and keeps pages that were left for its button "Back".
    for _ in range(8):
        show(browser, world, "tables", world.group.table.name)
        browser.until_text("alice", "they are updated live", selector="main", seconds=20)
    before = count_of_bob(browser)
    browser.open("about:blank")
    world.emit("bob")
    world.until(f"/api/tables/{world.group.table.name}/rows", lambda answer: str(before + 1) in str(answer))
    browser.back()
    browser.until(
        lambda: "they are updated live" in browser.text("main") and count_of_bob(browser) > before, 20
    )


def test_rows_are_searched_by_the_beginning_of_their_keys(world: World, browser: Browser) -> None:
    show(browser, world, "tables", world.group.table.name)
    browser.until_text("alice", "bob", selector="#rows")
    browser.run("document.getElementById('prefix').focus()")
    browser.press("b", "o", ENTER)
    browser.until(lambda: "bob" in browser.text("#rows") and "alice" not in browser.text("#rows"))


def test_a_console_with_keys_asks_for_one_and_sends_letters_again(world: World, browser: Browser) -> None:
    browser.look(width=1360, height=900, dark=False)
    browser.open("about:blank")
    browser.open(f"{world.signed.base_url}/#/letters/{world.group.name}")
    browser.until_text("Sign in")
    assert violations(browser) == []
    browser.press(*"wrong", ENTER)
    browser.until_text("This key is not known.")
    browser.press(*KEY, ENTER)
    browser.until_text("DeserializationError", "Send again: choose letters")
    assert violations(browser) == []
    browser.run("window.confirm = () => true; document.getElementById('choose-all').focus()")
    browser.press(ENTER)
    browser.until_text("Send 1 again")
    browser.press(TAB, ENTER)
    browser.until_text("1 letter was sent to", "sent again")
    browser.run("sessionStorage.clear()")


def test_a_site_whose_name_is_rebound_to_the_console_reads_nothing(world: World, browser: Browser) -> None:
    # A document of the attacker's origin. It was served by the attacker, so no policy of ours binds its scripts.
    browser.command("Page.setBypassCSP", enabled=True)
    browser.open(f"http://{ATTACKER}:{world.http.base_url.port}/livez")
    browser.until_text("alive")
    read = "return fetch(arguments[0]).then((answer) => answer.text().then((text) => [answer.status, text]))"
    for path in ("/", "/api/fleet", f"/api/topics/{world.clicks.name}/records", "/metrics", "/openapi.json"):
        status, text = browser.run(read, path)
        assert status == 421, text
        assert "SERVICEKIT_HOSTS" in text
        assert world.clicks.name not in text
    browser.command("Page.setBypassCSP", enabled=False)


def test_a_page_of_another_site_reads_nothing_in_the_name_of_a_user(world: World, browser: Browser) -> None:
    browser.command("Page.setBypassCSP", enabled=True)
    browser.open(f"http://{ATTACKER}:{world.http.base_url.port}/livez")
    browser.until_text("alive")
    fleet = f"{world.http.base_url}/api/fleet"
    assert browser.run("return fetch(arguments[0]).then(() => 'read', () => 'refused')", fleet) == "refused"
    browser.run("location = arguments[0]", fleet)  # what a link does
    browser.until_text("a page of another site asks for this")
    browser.command("Page.setBypassCSP", enabled=False)


def test_a_console_without_keys_asks_for_the_token_that_it_has_printed(world: World, tmp_path: Path) -> None:
    with chromium(tmp_path) as stranger:
        stranger.open(f"{world.http.base_url}/#/topics/{world.clicks.name}")
        stranger.until_text("Sign in")
        stranger.open("about:blank")
        stranger.open(f"{world.http.base_url}/?code=wrong")
        stranger.until_text("Sign in")
        stranger.open("about:blank")
        stranger.open(f"{world.sign_in_url}#/topics/{world.clicks.name}")
        stranger.until_text("eve", "UserClick")
        address, cookie = stranger.run("return [location.href, document.cookie]")
        assert "code" not in address
        assert cookie == "", "scripts can read the cookie"
        stranger.open("about:blank")
        stranger.open(f"{world.http.base_url}/#/instances")
        stranger.until_text(world.group.name, "worker")


def test_windows_that_closed_last_are_shown_before_a_choice_and_open_ones_are_not(
    world: World, browser: Browser
) -> None:
    show(browser, world, "windows")
    browser.until_text("The windows that closed last", selector="#closed-windows")
    script = "return [...document.querySelectorAll('#closed-windows tbody tr')].map((row) => [...row.cells].map((cell) => cell.innerText))"
    rows = browser.run(script)
    assert sorted((key, value.split()[0]) for _, _, key, value in rows) == [("alice", "3"), ("bob", "4")]
    assert {begins for _, begins, _, _ in rows} == {rows[0][1]}


def test_a_chart_of_windows_changes_when_a_window_does(world: World, browser: Browser) -> None:
    show(browser, world, "windows", world.windows.name)
    browser.until_text("The latest windows", selector="#windows")
    world.count_in_minute("alice", 2, 42)
    browser.until_text("42", selector="#windows")
    assert browser.run("return document.querySelectorAll('#windows .bar').length") == 3


def test_a_topic_is_followed_as_it_grows(world: World, browser: Browser) -> None:
    show(browser, world, "topics", world.clicks.name)
    browser.until_text("the latest first", selector="#topic-said")
    browser.run("document.getElementById('follow').focus()")
    browser.press(SPACE)
    world.emit("fay")
    browser.until_text("fay", selector="#records")


def test_a_run_is_shown_as_it_goes_on(world: World, browser: Browser) -> None:
    show(browser, world, "runs", "etl-1")
    browser.until_text("silver, 1 of 3 stages done", "killed", selector="#runs")
    world.tell_run(run_with(run="etl-1", job="etl", differences=-1, summary="all is in the lake"))
    browser.until_text("all is in the lake", "done", selector="#runs")


def test_a_small_screen_has_the_graph_as_a_list(world: World, browser: Browser) -> None:
    browser.look(width=390, height=844, dark=False, phone=True)
    show(browser, world, "fleet")
    browser.until_text(world.group.name, world.group.table.name, selector="#outline")
    assert browser.text("#graph") == ""


def test_pictures_can_be_taken(world: World, browser: Browser, tmp_path: Path) -> None:
    show(browser, world, "fleet")
    browser.picture(tmp_path / "fleet.png")
    assert (tmp_path / "fleet.png").read_bytes().startswith(b"\x89PNG")
