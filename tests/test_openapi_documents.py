"""The OpenAPI documents in the repository are current, and clients of released ones can go on."""

from functools import cache
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

from servicekit_testing.openapi_documents import main

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "proto" / "openapi"
GENERATORS = sorted(ROOT.glob("services/*/generate_openapi.py"))


@cache
def documents_of(generator: Path) -> dict[str, dict[str, Any]]:
    script = run_path(str(generator))
    assert script["TARGET"] == TARGET
    documents: dict[str, dict[str, Any]] = script["documents"]()
    return documents


@pytest.mark.parametrize("generator", GENERATORS, ids=lambda path: path.parent.name)
def test_the_documents_of_a_service_are_current_released_and_suit_clients_of_released_ones(
    generator: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = documents_of(generator)
    assert main(documents, ["--check"], TARGET) == 0, capsys.readouterr().err
    for name in documents:
        assert list((TARGET / "history" / name).glob("*.json")), name


def test_every_document_is_of_a_service() -> None:
    made = {name for path in GENERATORS for name in documents_of(path)}
    assert made == {path.stem for path in TARGET.glob("*.json")}
