"""Groups from a user's own modules."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamtable.errors import ConfigurationError
from streamtable_cli.modules import load_group

SHOP = """
from streamtable import Count, Group, Input, Long, Persist, Stream, String
COUNTS = Group("counts", Input(Stream("clicks", String(), Long()), aggregate=Count()), Persist(Long()))
NUMBER = 7
def made(name):
    return Group(name, *COUNTS.inputs, COUNTS.persist)
class Inner:
    COUNTS = COUNTS
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
def test_a_group_is_taken_from_a_module_in_the_current_folder(spec: str) -> None:
    assert load_group(spec).name == "counts"


def test_a_function_makes_a_group_of_a_text() -> None:
    assert load_group("shop_of_tests:made(click-count)").name == "click-count"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
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
        ("shop_of_tests:made", "no streamtable.Group, but a function"),
        ("none_of_tests:COUNTS", "cannot be imported .ModuleNotFoundError"),
        ("broken_of_tests:COUNTS", "cannot be imported .ZeroDivisionError"),
        ("exits_of_tests:COUNTS", "cannot be imported .SystemExit"),
        ("shop_of_tests:COUNT", "its groups are COUNTS"),
        ("shop_of_tests:NUMBER", "no streamtable.Group, but a int"),
    ],
)
def test_what_is_no_group_is_refused_with_the_reason(spec: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load_group(spec)
