"""The page about Spark says of each module why it is there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "spark/src/streamtable_spark"


def test_the_page_names_each_module_and_none_that_is_gone() -> None:
    page = (ROOT / "docs/explanation/spark.md").read_text()
    modules = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")}
    named = set(re.findall(r"`((?:jobs/|transforms/)?(?!test_)\w+\.py)`", page))
    assert named == {name for name in modules if not name.endswith("__init__.py")}
