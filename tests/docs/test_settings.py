"""The page of the settings is what the table of settings says today."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def settings_page() -> ModuleType:
    spec = spec_from_file_location("settings_page", ROOT / "infra/settings_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(settings_page: ModuleType) -> None:
    text = (ROOT / "docs/reference/settings.md").read_text()
    assert settings_page.page(text) == text, "run 'make gen'"


def test_each_setting_has_its_meaning_its_values_and_its_default(settings_page: ModuleType) -> None:
    rows = {variable: more for variable, *more in settings_page.table()}
    assert all(all(cells) for cells in rows.values())
    assert rows["`STREAMTABLE_COMMIT_INTERVAL`"] == [
        "the time between commits",
        "seconds, a plain decimal number from 0.01 to 60",
        "`0.2`",
    ]
