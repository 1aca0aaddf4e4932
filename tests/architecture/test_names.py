"""Names and docstrings: a class name has one owner, so that it means one concept; a docstring names what it describes."""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATED_STUBS = "contracts/grpc"
DOCUMENTED = ("bench", "infra", "libs", "services", "spark")
"""The folders whose docstrings are checked."""
GENERATED = (GENERATED_STUBS, "contracts/records.py")
QUESTION = re.compile(r"(What|Who|Where|How|When|That)\b")


def owners_of_class_names(root: Path) -> dict[str, list[str]]:
    """Return the modules that define each public class of the libraries."""
    owners: dict[str, list[str]] = defaultdict(list)
    for path in sorted(root.glob("libs/*/src/**/*.py")):
        if "tests" in path.parts or GENERATED_STUBS in path.as_posix():
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                owners[node.name].append(path.relative_to(root).as_posix())
    return owners


def test_no_public_class_name_has_two_owners() -> None:
    owners = owners_of_class_names(ROOT)
    assert "View" in owners
    assert {name: paths for name, paths in owners.items() if len(paths) > 1} == {}


def test_two_owners_of_a_name_are_found(tmp_path: Path) -> None:
    for package in ("one", "two"):
        source = tmp_path / "libs" / package / "src" / package
        source.mkdir(parents=True)
        (source / "records.py").write_text("class Record: ...\n\n\nclass _Row: ...\n")
    assert owners_of_class_names(tmp_path) == {
        "Record": ["libs/one/src/one/records.py", "libs/two/src/two/records.py"]
    }


def questions(root: Path, folders: tuple[str, ...]) -> list[str]:
    """Return the docstrings, also those of attributes, that begin with a question word instead of a noun or a verb."""
    return [
        f"{name}:{node.lineno}: {node.value.value.splitlines()[0]}"
        for folder in folders
        for path in sorted((root / folder).rglob("*.py"))
        if not any(made in (name := path.relative_to(root).as_posix()) for made in GENERATED)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        and QUESTION.match(node.value.value)
    ]


def test_no_docstring_begins_with_a_question_word() -> None:
    assert all((ROOT / folder).is_dir() for folder in DOCUMENTED)
    assert questions(ROOT, DOCUMENTED) == []


def test_docstrings_with_a_question_word_are_found_on_modules_classes_functions_and_attributes(
    tmp_path: Path,
) -> None:
    docstrings = ("How it works.", "What it has.", "Where it is.", "When it ends.", "Whatever it has.")
    module, of_class, attribute, function, allowed = docstrings
    (tmp_path / "records.py").write_text(
        f'"""{module}"""\n\n\nclass A:\n    """{of_class}"""\n\n    x: int\n    """{attribute}"""\n\n'
        f'    def y(self):\n        """{function}"""\n\n    def z(self):\n        """{allowed}"""\n'
    )
    found = questions(tmp_path, (".",))
    assert {each.partition(": ")[2] for each in found} == {module, of_class, attribute, function}
