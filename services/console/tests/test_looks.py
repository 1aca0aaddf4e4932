"""Every page over recorded fleets in a real Chromium: accessible, no wider than the screen, and as a picture for people.

`CONSOLE_PICTURES` names a folder to keep the pictures in.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from services.console.tests.browser import Browser, chromium, missing
from services.console.tests.looks import CONTRAST, violations
from services.console.tests.recorded import (
    Pages,
    Recording,
    aborting,
    calling,
    crashed,
    large,
    overloaded,
    pages,
)

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"no browser: {missing()}"),
    pytest.mark.skipif(sys.platform != "linux", reason="the browser is started as on Linux"),
    pytest.mark.timeout(300),
]
FLEETS = {
    "empty": list,
    "crashed": crashed,
    "busy": large,
    "calling": calling,
    "aborting": aborting,
    "overloaded": overloaded,
}
LONG = "the same pages over four more fleets, and all in four looks"
PARTS = [
    "fleet", "instances", "instances/click-count", "tables", "tables/click-count-table", "windows", "windows/inventory-by-product-hours",
    "letters", "letters/click-count", "topics", "topics/user-clicks", "runs", "runs/audit-1", "runs/etl-1", "runs/rebuild-1", "history",
]  # fmt: skip
LOOKS = [("desktop", "dark"), ("phone", "light")]
LOOKS_LONG = [*LOOKS, ("desktop", "light"), ("phone", "dark")]
READY = "const text = document.getElementById('page').innerText; return text.length > 10 && !/(Loading|Reading)…/.test(text)"
PICTURES = os.environ.get("CONSOLE_PICTURES")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def site() -> Iterator[Pages]:
    with pages() as found:
        yield found


@pytest.fixture(scope="module")
def recordings() -> dict[str, Recording]:
    return {}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(
    ("fleet", "looks"),
    [
        pytest.param("crashed", LOOKS, id="crashed"),
        pytest.param("empty", LOOKS[1:], id="empty"),
        *(
            pytest.param(name, LOOKS_LONG, id=f"{name}, all looks", marks=pytest.mark.faults_long(LONG))
            for name in FLEETS
        ),
    ],
)
def test_each_page_is_accessible_and_no_wider_than_the_screen_in_each_state(
    browser: Browser,
    site: Pages,
    recordings: dict[str, Recording],
    fleet: str,
    part: str,
    looks: list[tuple[str, str]],
) -> None:
    if fleet not in recordings:
        recordings[fleet] = Recording(FLEETS[fleet](), steps=3 if fleet == "busy" else 100)
    site.play(recordings[fleet])
    browser.complaints()
    for screen, colours in looks:
        phone = screen == "phone"
        browser.look(
            width=390 if phone else 1360, height=844 if phone else 900, dark=colours == "dark", phone=phone
        )
        browser.open("about:blank")
        browser.open(f"{site.url}/#/{part}")
        browser.until_text("live, ", selector="#connection")  # the fleet is shown
        browser.until(lambda: browser.run(READY), seconds=20)
        if PICTURES:
            name = f"{fleet}-{part.replace('/', '-')}-{screen}-{colours}.png"
            browser.picture(Path(PICTURES) / name, whole=True)
        assert violations(browser, contrast=False) == []
        assert browser.run(CONTRAST) == []
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth"), "it scrolls sideways"
    assert [each for each in browser.complaints() if "404" not in each] == []
