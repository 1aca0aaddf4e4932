"""The commands and code in the README work as shown."""

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.docs.pages import BRIEF_JAVA

from streamtable_testing import Tester

ROOT = Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text()


@pytest.mark.broker
@pytest.mark.timeout(400)
@pytest.mark.slow("the demo runs four scenarios with all their processes")
def test_the_answers_of_the_demo_are_right_and_ctrl_c_stops_everything_that_it_started(
    tmp_path: Path,
) -> None:
    own = {**BRIEF_JAVA, "TMPDIR": str(tmp_path)}  # which tells its processes from those of other demos
    with subprocess.Popen(
        [ROOT / ".venv/bin/python", "-m", "infra.demo"],
        cwd=ROOT, env={**os.environ, **own}, stdout=subprocess.PIPE, text=True, start_new_session=True,
    ) as demo:  # fmt: skip
        assert demo.stdout is not None
        shown = ""
        for line in demo.stdout:
            shown += line
            if "Ctrl-C" in line:
                break
        demo.send_signal(signal.SIGINT)
        shown += demo.stdout.read()
    assert shown.count("right") == 40
    assert "WRONG" not in shown
    assert demo.returncode == 0, shown
    assert "Everything is stopped." in shown
    assert re.search(r"STREAMTABLE_BOOTSTRAP_SERVERS=(\S+)", shown)
    found = f"{tmp_path}/streamtable-demo-"
    left = subprocess.run(["pgrep", "-f", found], capture_output=True, text=True, check=False)
    assert left.stdout == ""


def test_make_demo_with_check_ends_by_itself() -> None:
    plain, checked = (
        subprocess.run(
            ["make", "--no-print-directory", "--dry-run", "demo", *variables],
            cwd=ROOT, capture_output=True, text=True, check=True,
        ).stdout.splitlines()[-1].rstrip()
        for variables in ((), ("CHECK=1",))
    )  # fmt: skip
    assert plain.endswith("-m infra.demo")
    assert checked == f"{plain} --check"


@pytest.mark.faults_long  # the same demo once more
@pytest.mark.broker
@pytest.mark.timeout(400)
def test_make_demo_with_check_ends_with_0_because_all_answers_are_right() -> None:
    done = subprocess.run(
        ["make", "--no-print-directory", "demo", "CHECK=1"],
        cwd=ROOT, capture_output=True, text=True, timeout=380, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("right") == 37
    assert "WRONG" not in done.stdout


def test_every_verb_that_the_readme_names_is_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for verb in set(re.findall(r"\bmake ([a-z-]+)", README)):
        assert re.search(rf"^{verb}:", makefile, re.MULTILINE), verb


def links_of(page: Path) -> list[Path]:
    """Return the targets of a page's links, without links to other sites. Code has no links."""
    prose = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [page.parent / target for target in re.findall(r"\]\((?!https?:)([^)#]+)", prose)]


def test_every_link_of_the_docs_leads_to_a_file() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in links_of(page):
            assert target.exists(), f"{page.name}: {target}"


def test_every_page_of_the_docs_is_reached_by_links_from_the_readme() -> None:
    reached, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop().resolve()
        if page not in reached:
            reached.add(page)
            todo += [target for target in links_of(page) if target.suffix == ".md"]
    assert set((ROOT / "docs").rglob("*.md")) - reached == set()


def test_the_program_of_the_library_s_readme_counts(tester: Tester) -> None:
    text = (ROOT / "libs/streamtable/README.md").read_text()
    program, _ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)  # the second queries a running one
    names: dict[str, Any] = {"__name__": "clicks"}
    exec(program, names)
    tester.run(names["COUNTS"])
    tester.emit(names["CLICKS"], "alice", {"url": "https://example.org"})
    assert tester.table(names["COUNTS"]) == {"alice": 1}
