"""The public names of the library are defined once, in `__all__`, without the parts of the engine."""

import re
from pathlib import Path
from types import ModuleType

import streamtable

PAGE = Path(__file__).parents[2] / "docs/reference/api.md"
INTERNAL = ("ViewUpdater", "ReplicaSet", "GroupProcessor", "PartitionReplica", "streamtable.engine")


def test_all_names_exactly_what_the_package_binds() -> None:
    bound = {
        name
        for name, value in vars(streamtable).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert bound == set(streamtable.__all__)
    assert list(streamtable.__all__) == sorted(streamtable.__all__)


def test_the_reference_of_names_shows_no_part_of_the_engine() -> None:
    page = PAGE.read_text()
    assert [name for name in INTERNAL if name in page] == []
    members = re.findall(r"^#### (?!Stores)\w+\.(\w+)$", page, re.MULTILINE)
    assert {"turns", "step", "open", "step_background", "tasks_for_tests"} & set(members) == set()
