import json
from pathlib import Path
from typing import Any

import pytest

from servicekit_testing.openapi_documents import main


def documents(**info: str) -> dict[str, Any]:
    paths = {"/top": {"get": {"responses": {"200": {"description": "The list"}}}}}
    return {
        "shop": {"openapi": "3.1.0", "info": {"title": "shop", "version": "1.0.0", **info}, "paths": paths}
    }


def test_a_document_that_is_not_current_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(documents(), ["--check"], tmp_path) == 1
    assert "shop.json is not current: make gen" in capsys.readouterr().err
    assert main(documents(), [], tmp_path) == 0
    assert main(documents(), ["--check"], tmp_path) == 0


def test_a_change_that_breaks_released_clients_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(documents(), ["--release"], tmp_path) == 0
    released = tmp_path / "history" / "shop" / "1.0.0.json"
    document = json.loads(released.read_text("utf-8"))
    document["paths"]["/gone"] = document["paths"]["/top"]
    released.write_text(json.dumps(document), "utf-8")
    assert main(documents(), [], tmp_path) == 1
    assert "shop breaks clients of 1.0.0: GET /gone: it is gone" in capsys.readouterr().err


def test_another_first_number_may_break_clients(tmp_path: Path) -> None:
    later = documents(version="2.0.0")
    later["shop"]["paths"] = {}
    assert main(documents(), ["--release"], tmp_path) == 0
    assert main(later, ["--release"], tmp_path) == 0


def test_a_released_version_stays_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(documents(), ["--release"], tmp_path) == 0
    assert main(documents(description="another one"), ["--release"], tmp_path) == 1
    assert "give it a new version" in capsys.readouterr().err
