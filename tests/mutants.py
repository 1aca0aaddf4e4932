"""`python -m tests.mutants`: plants small mistakes in the modules that matter most, and checks that their tests find them.

A mutant is one mistake in one module: a changed comparison, sign, number or condition, an omitted call or exception, a
result of None. It is written to a copy of the package, which the tests import instead. A mutant that no test notices
shows that this mistake would go undetected.
"""

import argparse
import ast
import copy
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
TARGETS: Final = Path(__file__).with_name("mutants.toml")
FOUND_MIN: Final = 0.9
_OTHER: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A module and its tests, as paths from the root.

    Attributes:
        module: its source.
        tests: The arguments of pytest.
    """

    module: str
    tests: tuple[str, ...]

    @property
    def package(self) -> Path:
        """The folder of the package."""
        source = ROOT / self.module
        return next(parent for parent in source.parents if parent.parent.name == "src")


@dataclass(frozen=True)
class Mutant:
    """One mistake: what stood there and what stands there now, and the whole module with it."""

    line: int
    before: str
    after: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.before} -> {self.after}"


def mutants_of(source: str) -> Iterator[Mutant]:
    """All of a module."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    places = {id(node): at for at, node in enumerate(nodes)}
    within = {id(child): node for node in nodes for child in ast.iter_child_nodes(node)}
    for at, node in enumerate(nodes):
        shown = _shown(node, within)
        for number in range(_changes(node)):
            changed = copy.deepcopy(tree)
            others = list(ast.walk(changed))
            _change(others[at], number)
            after = ast.unparse(others[places[id(shown)]])
            yield Mutant(getattr(node, "lineno", 0), ast.unparse(shown), after, ast.unparse(changed))


def _shown(node: ast.AST, within: Mapping[int, ast.AST]) -> ast.AST:
    """Return the node that identifies a mutation: for a number the expression around it, up to its statement."""
    if not isinstance(node, ast.Constant):
        return node
    shown: ast.AST = node
    while not isinstance(shown, ast.stmt):
        outer = within[id(shown)]
        if not isinstance(outer, ast.expr | ast.stmt) or hasattr(outer, "body"):
            break
        shown = outer
    return shown


def _changes(node: ast.AST) -> int:
    """Return the number of mutations at this place."""
    match node:
        case ast.Compare(ops=ops):
            return sum(type(op) in _OTHER for op in ops)
        case ast.BinOp(op=op):
            return int(type(op) in _OTHER)
        case ast.Constant(value=value):
            return int(type(value) is int)
        case ast.Return(value=None | ast.Constant(value=None)):
            return 0
        case (
            ast.BoolOp() | ast.UnaryOp(op=ast.Not()) | ast.Raise() | ast.Return() | ast.Expr(value=ast.Call())
        ):
            return 1
    return 0


def _change(node: ast.AST, number: int) -> None:
    """Make the mistake, in place."""
    match node:
        case ast.Compare():
            known = [at for at, op in enumerate(node.ops) if type(op) in _OTHER]
            made = _OTHER[type(node.ops[known[number]])]()
            assert isinstance(made, ast.cmpop)
            node.ops[known[number]] = made
        case ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case ast.BinOp():
            node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        case ast.UnaryOp():
            node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), node.operand)
        case ast.Constant(value=int(value)):
            node.value = value + 1
        case ast.Return():
            node.value = ast.Constant(None)
        case ast.Raise():
            node.__class__, node.exc, node.cause = ast.Pass, None, None  # type: ignore[assignment]
        case ast.Expr():
            node.value = ast.Constant(None)


def passes(target: Target, text: str, seconds: float) -> bool:
    """Whether the tests pass with this text in place of the module, within so many seconds."""
    with tempfile.TemporaryDirectory(prefix="streamtable-mutants-") as folder:
        package = Path(folder) / target.package.name
        shutil.copytree(target.package, package, ignore=shutil.ignore_patterns("__pycache__"))
        (package / (ROOT / target.module).relative_to(target.package)).write_text(text)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-p",
            "no:xdist",
            "-p",
            "no:schemathesis",
            *target.tests,
        ]
        environment = {
            **os.environ,
            "PYTHONPATH": folder,
            "PYTHONDONTWRITEBYTECODE": "1",
            "HYPOTHESIS_DATABASE": "none",
        }
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0


def examine(target: Target, count: int, random: Random) -> tuple[list[Mutant], list[Mutant]]:
    """Try so many mutants of a module. Returns all that were tried, and those that were not found.

    Raises:
        SystemExit: the tests fail without any mistake.
    """
    source = (ROOT / target.module).read_text()
    began = time.monotonic()
    if not passes(target, ast.unparse(ast.parse(source)), 3_600):
        raise SystemExit(f"the tests of {target.module} fail as it is: {' '.join(target.tests)}")
    usual = time.monotonic() - began
    every = list(mutants_of(source))
    tried = random.sample(every, min(count, len(every)))
    survivors = []
    for mutant in tried:
        found = not passes(target, mutant.text, 10 * usual + 30)
        print(
            f"  {'found   ' if found else 'SURVIVES'} {target.module}:{mutant.line}: {mutant.name}",
            flush=True,
        )
        if not found:
            survivors.append(mutant)
    return tried, survivors


def main(arguments: Sequence[str] | None = None) -> int:
    """Examine the modules of tests/mutants.toml. Exit code 1: too many mutants of one of them survive."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=20, help="mutants of each module")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument("--only", default="", help="modules whose path has this text in it")
    given = parser.parse_args(arguments)
    targets = tomllib.loads(TARGETS.read_text())
    excused: dict[str, dict[str, str]] = targets.get("survivors", {})
    failed = False
    for module, tests in targets["modules"].items():
        if given.only not in module:
            continue
        tried, survivors = examine(Target(module, tuple(tests)), given.count, Random(given.seed))
        known = excused.get(module, {})
        left = [mutant for mutant in survivors if mutant.name not in known]
        share = 1 - len(left) / max(1, len(tried))
        failed = failed or share < FOUND_MIN
        print(
            f"{module}: {share:.0%} of {len(tried)} mutants are found or have a reason, {FOUND_MIN:.0%} are needed"
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
