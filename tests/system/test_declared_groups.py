"""The groups that `infra/topics.yaml` declares match the code: rights and topics follow from them."""

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from infra.scenarios.manifest import load_all

from microbatch import MicroBatch
from streamtable import Avro, Group, Stream, Table
from streamtable_admin.declaration import declaration_of, yaml_of
from streamtable_admin.declared import Defaults, load

ROOT = Path(__file__).resolve().parents[2]
DECLARED = load(ROOT / "infra/topics.yaml")
NO_GROUP = {"streamtable-status", "streamtable-runs"}


def groups_of(graph: str) -> Iterable[Group[Any, Any]]:
    """The groups that a manifest says its package makes."""
    module, _, name = graph.partition(":")
    found = getattr(import_module(module), name)
    if isinstance(found, dict):
        return found.values()
    made = found()
    groups: Iterable[Group[Any, Any]] = [made] if isinstance(made, Group) else made.flow.groups
    return groups


OURS = [group for each in load_all(ROOT) for graph in each.graphs for group in groups_of(graph)]


def test_every_group_is_declared_and_nothing_else() -> None:
    assert DECLARED.groups.keys() == {group.name for group in OURS}


def test_each_group_is_declared_with_the_topics_that_it_uses() -> None:
    assert declaration_of(OURS, Defaults()).groups == DECLARED.groups


def test_the_file_that_the_command_prints_has_the_same_topics(tmp_path: Path) -> None:
    file = tmp_path / "topics.yaml"
    file.write_text(yaml_of(declaration_of(OURS, Defaults(partitions=12))))
    printed, ours = load(file).descriptions(), DECLARED.descriptions()
    assert printed.keys() == {name for name in ours if name not in NO_GROUP}
    assert {name for name, each in printed.items() if each.partitions != ours[name].partitions} == set()


@pytest.mark.parametrize("group", OURS, ids=lambda group: group.name)
def test_every_value_that_a_group_reads_or_writes_is_avro(group: Group[Any, Any]) -> None:
    used: list[Stream[Any, Any] | Table[Any, Any]] = [edge.stream for edge in group.inputs]
    used += [edge.stream for edge in group.outputs]
    used += [edge.table for edge in group.joins]
    used += [edge.table for edge in group.lookups]
    used += [group.state_table(state) for state in group.states]
    if group.persist and not isinstance(
        group, MicroBatch
    ):  # whose table is its own store, of rows of several kinds
        used.append(group.table)
    # What the steps of a flow tell each other, as joins by a foreign key do, has codecs of their own; what connectors write too.
    own = ("streamtable.flow.", "streamtable_capture.")
    others = [each for each in used if not type(each.value).__module__.startswith(own)]
    assert [each.name for each in others if not isinstance(each.value, Avro)] == []
