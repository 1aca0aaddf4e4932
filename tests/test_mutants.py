import ast
import tomllib

import pytest
from tests.mutants import ROOT, TARGETS, Target, mutants_of, passes

SOURCE = """
def bounded(x, most):
    if x > most and not x == 1:
        raise ValueError(x)
    log(x)
    return x + 2
"""


def test_each_place_of_a_module_gets_its_mistakes() -> None:
    assert {mutant.name for mutant in mutants_of(SOURCE)} == {
        "x > most and (not x == 1) -> x > most or not x == 1",
        "x > most -> x >= most",
        "x == 1 -> x != 1",
        "not x == 1 -> not not x == 1",
        "x > most and (not x == 1) -> x > most and (not x == 2)",
        "return x + 2 -> return x + 3",
        "raise ValueError(x) -> pass",
        "log(x) -> None",
        "x + 2 -> x - 2",
        "return x + 2 -> return None",
    }
    for mutant in mutants_of(SOURCE):
        assert ast.dump(ast.parse(mutant.text)) != ast.dump(ast.parse(SOURCE))


@pytest.mark.faults_long("two sessions of pytest, as `make mutants` has them by the hundred")
def test_the_tests_see_the_mistake_and_not_the_module_beside_it() -> None:
    pages = Target(
        "libs/servicekit/src/servicekit/auth/rate_limit.py",
        ("libs/servicekit/tests/auth/test_rate_limit.py",),
    )
    source = (ROOT / pages.module).read_text()
    assert passes(pages, source, 120)
    assert not passes(pages, f"{source}\nraise RuntimeError\n", 120)


def test_what_is_examined_is_there() -> None:
    for module, tests in tomllib.loads(TARGETS.read_text())["modules"].items():
        assert all((ROOT / path).exists() for path in (module, *tests))
