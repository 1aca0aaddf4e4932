"""The documentation site: built from the pages of docs/ without a dead link, and read in a real Chromium."""

import json
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from infra.docs_site import build, hooks
from infra.docs_site.hooks import navigation, relink
from markdown_it import MarkdownIt
from services.console.tests.browser import ENTER, Browser, chromium, missing

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
pytestmark = pytest.mark.server


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a site with two versions; the older one has the same pages."""
    folder = tmp_path_factory.mktemp("site")
    assert build.main(["--out", str(folder), "--version", "0.10.0"]) == 0
    shutil.copytree(folder / "0.10.0", folder / "0.9.0")
    build.list_versions(folder)
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if reason := missing() or ("" if sys.platform == "linux" else "the browser is started as on Linux"):
        pytest.skip(f"no browser: {reason}")
    with chromium(tmp_path_factory.mktemp("browser")) as found:
        yield found


def find_late_records(page: Browser) -> None:
    page.run("document.querySelector('label[for=__search]')?.click()")
    page.until(
        lambda: page.run("return document.activeElement === document.querySelector('.md-search__input')")
    )
    page.press(*"late records")
    # The results of what was typed before may still be there.
    found = "return document.querySelector('.md-search-result__link[href*=\"h=late+records\"]') !== null"
    page.until(lambda: page.run(found), 30)
    page.press(ENTER)
    page.until(lambda: "?h=" in str(page.run("return location.href")), 30)
    page.until(
        lambda: page.run(
            "return [...document.querySelectorAll('mark')].some(e => /late/i.test(e.textContent))"
        )
    )


def switch_to(page: Browser, scheme: str) -> None:
    """Press the switch in the header until the scheme is this one: automatic, light, dark."""

    def is_it() -> bool:
        if page.run("return document.body?.dataset.mdColorScheme") == scheme:
            return True
        page.run("document.querySelector('form[data-md-component=palette] label:not([hidden])')?.click()")
        return False

    page.until(is_it, 10)


@pytest.mark.parametrize("width", [1360, 390], ids=["desktop", "phone"])
def test_a_reader_finds_late_records_in_the_dark_and_no_request_leaves_the_machine(
    width: int, address: str, browser: Browser
) -> None:
    browser.look(width=width, height=844, dark=False, phone=width < 800)
    browser.requested()
    browser.open(f"{address}/")
    browser.until(
        lambda: str(browser.run("return document.readyState + location.pathname")) == "complete/0.10.0/"
    )
    switch_to(browser, "slate")
    find_late_records(browser)
    assert browser.run("return document.body.dataset.mdColorScheme") == "slate"
    assert browser.run("return getComputedStyle(document.body).color") != "rgb(0, 0, 0)"
    switch_to(browser, "default")
    browser.open(f"{address}/0.10.0/explanation/joins/")
    browser.until(lambda: browser.run("return document.querySelectorAll('div.mermaid').length") == 7)
    assert browser.run("return document.documentElement.scrollWidth - innerWidth") <= 0
    assert browser.complaints() == []
    assert {url for url in browser.requested() if not url.startswith((address, "data:", "blob:"))} == set()


def test_the_switch_of_versions_leads_to_the_same_page_of_another_version(
    address: str, browser: Browser
) -> None:
    browser.look(width=1360, height=900, dark=False)
    browser.open(f"{address}/0.10.0/explanation/windows/")
    browser.until(lambda: browser.text(".md-version__current") == "0.10.0")
    links = "return [...document.querySelectorAll('.md-version__link')].map(e => e.textContent.trim())"
    assert browser.run(links) == ["0.10.0", "0.9.0"]
    browser.run("document.querySelectorAll('.md-version__link')[1].click()")
    browser.until(lambda: str(browser.run("return location.pathname")) == "/0.9.0/explanation/windows/")


def test_the_newest_version_is_first_and_a_release_candidate_is_older_than_its_release(
    tmp_path: Path,
) -> None:
    for version in ("0.9.0", "0.10.0rc1", "0.10.0", "0.2", "assets"):
        (tmp_path / version).mkdir()
    build.list_versions(tmp_path)
    found = json.loads((tmp_path / "versions.json").read_text())
    assert [each["version"] for each in found] == ["0.10.0", "0.10.0rc1", "0.9.0", "0.2"]
    assert [each["aliases"] for each in found] == [["latest"], [], [], []]
    assert 'url=0.10.0/"' in (tmp_path / "index.html").read_text()


def test_each_page_has_the_lists_the_code_and_the_tables_that_it_has_on_a_code_host(site: Path) -> None:
    markdown = MarkdownIt("commonmark").enable("table")
    for source in PAGES:
        name = source.relative_to(ROOT / "docs").as_posix()
        place = "pages" if name == "README.md" else name.removesuffix("/README.md").removesuffix(".md")
        html = (site / "0.10.0" / place / "index.html").read_text()
        article = re.findall(r'<article class="md-content__inner.*?</article>', html, re.DOTALL)
        assert shape_of(*article) == shape_of(markdown.render(source.read_text())), name


def shape_of(html: str) -> list[str]:
    return re.findall(r"</?(?:li|ol|ul|pre|table)\b", html)


def test_the_navigation_has_every_page_that_the_list_of_pages_has() -> None:
    pages = (ROOT / "docs" / "README.md").read_text()
    assert navigation("# All\n\n## How to\n\n- [Count `once`](a/b.md)\n") == [
        {"Home": "index.md"}, {"How to": [{"Count `once`": "a/b.md"}]}, {"All pages": "pages.md"}
    ]  # fmt: skip
    listed = [
        target for section in navigation(pages) for entry in section.values() for target in targets_of(entry)
    ]
    assert len(listed) == len(set(listed)) == len(PAGES) + 1


def targets_of(entry: str | list[dict[str, str]]) -> list[str]:
    return [entry] if isinstance(entry, str) else [target for each in entry for target in each.values()]


def test_links_lead_to_pages_of_the_site_and_links_to_other_files_are_text_unless_a_repository_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outside = "[releases](../../RELEASING.md#one)"
    assert (
        relink("[a](docs/how-to/a.md#b) [all](docs/README.md)", "index.md")
        == "[a](how-to/a.md#b) [all](pages.md)"
    )
    assert (
        relink("[start](../../README.md) and [b](b.md)", "how-to/a.md")
        == "[start](../index.md) and [b](b.md)"
    )
    assert (
        relink("`[a](../b.md)` [web](https://example.org/)", "how-to/a.md")
        == "`[a](../b.md)` [web](https://example.org/)"
    )
    assert relink(outside, "how-to/a.md") == "releases"
    monkeypatch.setattr(hooks, "REPOSITORY", "https://example.org/st")
    assert relink(outside, "how-to/a.md") == "[releases](https://example.org/st/blob/main/RELEASING.md#one)"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A checkout with a home page and one page."""
    for name in ("mkdocs.yml", "infra/docs_site/hooks.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# Home\n\n[a](docs/a.md)\n")
    (tmp_path / "docs/README.md").write_text("# Pages\n\n## All\n\n- [A](a.md)\n")
    (tmp_path / "docs/a.md").write_text("# A\n\nText.\n")
    return tmp_path


def write(name: str, text: str) -> Callable[[Path], object]:
    return lambda root: (root / name).write_text(text)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (write("docs/a.md", "# A\n\n[b](b.md)\n"), "'b.md', but the target is not found"),
        (write("docs/a.md", "# A\n\n[b](#not-here)\n"), "no such anchor"),
        (write("docs/b.md", "# B\n"), 'exist in the docs directory, but are not included in the "nav"'),
    ],
    ids=["a dead link", "a dead anchor", "a page that is not listed"],
)
def test_a_site_with_a_flaw_is_not_built(change: Callable[[Path], object], reason: str, small: Path) -> None:
    build.build(small, small / "site")
    change(small)
    with pytest.raises(build.SiteNotBuilt, match=re.escape(reason)):
        build.build(small, small / "site")


def test_pages_can_be_edited_where_the_repository_is(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMTABLE_SITE_REPOSITORY", "https://example.org/st")
    build.build(small, small / "site")
    assert "https://example.org/st/edit/main/docs/a.md" in (small / "site/a/index.html").read_text()
    assert "https://example.org/st/edit/main/README.md" in (small / "site/index.html").read_text()


@pytest.mark.parametrize("version", ["latest", "../x"])
def test_a_malformed_version_is_refused(version: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert build.main(["--version", version]) == 2
    assert f"{version!r} is not a version" in capsys.readouterr().err
