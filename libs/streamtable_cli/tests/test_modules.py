"""Groups from a user's own modules."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamtable.errors import ConfigurationError
from streamtable_cli.modules import load_group, load_groups

SHOP = """
from streamtable import Count, Group, Input, Long, Persist, Stream, String
COUNTS = Group("counts", Input(Stream("clicks", String(), Long()), aggregate=Count()), Persist(Long()))
NUMBER = 7
def made(name):
    return Group(name, *COUNTS.inputs, COUNTS.persist)
class Inner:
    COUNTS = COUNTS
from streamtable.flow import Flow
VIEWS = Flow("views")
VIEWS.stream(Stream("clicks", String(), String())).group_by("by-page", str, key=String()).count("per-page")
def flow_of(name):
    made = Flow(name)
    made.stream(Stream("clicks", String(), String())).to_table("latest")
    return made
EMPTY = Flow("empty")
EAST = Flow("shop")
EAST.stream(Stream("clicks", String(), String()), group="east").group_by("by-page", str, key=String()).count("per-page")
import re
MATCH = re.match("a", "a")
class Numbered:
    groups = 3
NUMBERED = Numbered()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "shop_of_tests.py").write_text(SHOP)
    (tmp_path / "broken_of_tests.py").write_text("1 / 0")
    (tmp_path / "exits_of_tests.py").write_text("import sys; sys.exit(0)")
    yield
    for name in [name for name in sys.modules if name.endswith("_of_tests")]:
        del sys.modules[name]


@pytest.mark.parametrize("spec", ["shop_of_tests:COUNTS", "shop_of_tests:Inner.COUNTS"])
def test_a_group_is_imported_from_a_module_in_the_current_folder(spec: str) -> None:
    assert load_group(spec).name == "counts"


def test_a_function_can_return_a_group_for_a_text() -> None:
    assert load_group("shop_of_tests:made(click-count)").name == "click-count"


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ("shop_of_tests:VIEWS", ["views", "views-by-page"]),
        ("shop_of_tests:VIEWS.group(by-page)", ["views-by-page"]),
        ("shop_of_tests:VIEWS.group()", ["views"]),
        ("shop_of_tests:flow_of(seen)", ["seen"]),
        ("shop_of_tests:COUNTS", ["counts"]),
    ],
)
def test_a_flow_stands_for_all_of_its_groups(spec: str, names: list[str]) -> None:
    assert [group.name for group in load_groups(spec)] == names


def test_a_flow_is_rejected_with_its_group_names_where_one_group_is_needed() -> None:
    with pytest.raises(
        ConfigurationError, match=r"several groups: .*:VIEWS\.group\(\), .*:VIEWS\.group\(by-page\)"
    ):
        load_group("shop_of_tests:VIEWS")


def test_the_suggested_names_for_a_flow_are_those_of_its_groups() -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_group("shop_of_tests:EAST")
    advised = str(refused.value).partition("name one of ")[2].split(", ")
    assert [load_group(spec).name for spec in advised] == ["shop-east", "shop-by-page"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("shop_of_tests:EMPTY", "reads nothing"),
        ("shop_of_tests", "module:NAME"),
        ("shop_of_tests:", "module:NAME"),
        (":COUNTS", "module:NAME"),
        ("", "module:NAME"),
        ("../shop:COUNTS", "module:NAME"),
        ("shop_of_tests:COUNTS(", "module:NAME"),
        ("shop_of_tests:made(a)(b)", "module:NAME"),
        ("shop_of_tests:COUNTS()", "fails .TypeError"),
        ("shop_of_tests:made(a/b)", "fails .GraphError"),
        ("shop_of_tests:made()", "fails .TypeError"),
        ("shop_of_tests:made", "no Group and no Flow, but a function"),
        ("none_of_tests:COUNTS", "cannot be imported .ModuleNotFoundError"),
        ("broken_of_tests:COUNTS", "cannot be imported .ZeroDivisionError"),
        ("exits_of_tests:COUNTS", "cannot be imported .SystemExit"),
        ("shop_of_tests:COUNT", "its groups and flows are COUNTS, VIEWS, EMPTY, EAST"),
        ("shop_of_tests:NUMBER", "no Group and no Flow, but a int: 7"),
        ("shop_of_tests:Flow", "no Group and no Flow, but a type"),
        ("shop_of_tests:MATCH", "no Group and no Flow, but a Match"),
        ("shop_of_tests:NUMBERED", "no Group and no Flow, but a Numbered"),
    ],
)
def test_an_invalid_spec_is_rejected_with_the_reason(spec: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load_group(spec)
