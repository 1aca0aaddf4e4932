import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TOOLS = tomllib.loads((ROOT / "libs/servicekit_testing/pyproject.toml").read_text())["project"]["name"]
DEPENDENCIES = {
    (project := tomllib.loads(path.read_text())["project"])["name"]: [
        *project.get("dependencies", ()),
        *(each for extra in project.get("optional-dependencies", {}).values() for each in extra),
    ]
    for pattern in ("libs/*", "services/*", "spark")
    for path in ROOT.glob(f"{pattern}/pyproject.toml")
}


@pytest.mark.parametrize("name", sorted(DEPENDENCIES.keys() - {TOOLS}))
def test_no_package_that_goes_into_an_image_depends_on_the_test_tools(name: str) -> None:
    assert not [each for each in DEPENDENCIES[name] if each.startswith(TOOLS)]
