"""Each public class name has one owner, so that a name that is found in code, a log or a page means one concept."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATED_STUBS = "contracts/grpc"


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
