"""The groups that `infra/topics.yaml` declares are those of the code: rights and topics follow from them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from click_count.topics import by_count
from click_count.windows import click_windows
from inventory.flow import inventory
from messaging.groups import GROUPS
from microbatch import MicroBatch
from streamtable import Avro, Group, Stream, Table
from tweet_reach.stages import authors_stage, urls_stage
from user_status.topics import statuses

ROOT = Path(__file__).resolve().parents[2]
DECLARED: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "infra/topics.yaml").read_text())["groups"]
OURS: list[Group[Any, Any]] = [
    by_count("click-count"),
    *click_windows().flow.groups,
    statuses("user-status"),
    *GROUPS.values(),
    authors_stage("tweet-reach"),
    urls_stage("tweet-reach"),
    *inventory().flow.groups,
]


def test_every_group_is_declared_and_nothing_else() -> None:
    assert DECLARED.keys() == {group.name for group in OURS}


@pytest.mark.parametrize("group", OURS, ids=lambda group: group.name)
def test_a_group_is_declared_with_the_topics_that_it_uses(group: Group[Any, Any]) -> None:
    declared = DECLARED[group.name]
    loop = [group.loop.stream.name] if group.loop else []
    assert [*declared["inputs"], *loop] == [edge.stream.name for edge in group.inputs]
    assert declared.get("loop", False) == bool(loop)
    assert declared.get("joins", []) == [edge.table.name for edge in group.joins]
    assert declared.get("lookups", []) == [edge.table.name for edge in group.lookups]
    assert declared.get("outputs", []) == [edge.stream.name for edge in group.outputs]
    assert declared.get("table", True) == (group.persist is not None)
    assert declared.get("states", []) == [state.name for state in group.states]
    assert declared.get("once", False) == any(edge.once is not None for edge in group.inputs)


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
    # What the steps of a flow tell each other, as joins by a foreign key do, has codecs of their own.
    others = [each for each in used if not type(each.value).__module__.startswith("streamtable.flow.")]
    assert [each.name for each in others if not isinstance(each.value, Avro)] == []
