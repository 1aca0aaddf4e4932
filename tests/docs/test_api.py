"""The reference of the library's names is what the docstrings say today."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import streamtable
import streamtable_codecs
from streamtable import flow

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def api_page() -> ModuleType:
    spec = importlib.util.spec_from_file_location("api_page", ROOT / "infra/api_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(api_page: ModuleType) -> None:
    assert (ROOT / "docs/reference/api.md").read_text() == api_page.page(), "run 'make gen'"


def test_every_public_name_has_its_place(api_page: ModuleType) -> None:
    placed = [name for names in api_page.CHAPTERS.values() for name in names]
    assert sorted(placed) == sorted(streamtable.__all__)
    assert sorted(api_page.FLOWS) == sorted(flow.__all__)
    assert sorted(api_page.REGISTRIES) == sorted(streamtable_codecs.__all__)
