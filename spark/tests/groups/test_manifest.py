from dataclasses import replace
from pathlib import Path

import pytest

from streamtable_spark.errors import ConfigurationError
from streamtable_spark.jobs.manifest import Manifest, load
from streamtable_spark.jobs.positions import Span

MANIFEST = Manifest(
    scenario="click-count",
    group="click-count",
    as_group="v2",
    cluster="c",
    replace=False,
    inputs={"user-clicks": {0: Span(0, 5), 1: Span(0, 0)}},
    letters={"click-count-dead-letters": {0: Span(0, 1)}},
    offsets={"user-clicks": {0: 5, 1: 0}},
    before={},
    code="1",
    began="2026-03-01T00:00:00+00:00",
)


def test_a_manifest_that_was_saved_is_loaded_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "new" / "m.json"
    assert load(path) is None
    MANIFEST.save(path)
    assert load(path) == MANIFEST
    done = replace(
        MANIFEST,
        state="done",
        table={0: {"rows": 1, "digest": "a", "changelog": 5}},
        counts={"events": 2},
        tables={"open": {0: {"rows": 2}}},
    )
    done.save(path)
    assert load(path) == done
    assert [each.name for each in path.parent.iterdir()] == ["m.json"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "inputs": {}}'])
def test_a_file_that_is_no_manifest_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "m.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=r"m\.json is no manifest"):
        load(path)
