"""The declaration of the topics that groups and flows need, as a file that `streamtable topics apply` reads has it."""

from collections.abc import Sequence
from typing import Any, Literal

import yaml

from streamtable import Group
from streamtable.graph.companion import TIMER_TABLES
from streamtable.graph.group import HANDLED, IDS
from streamtable.graph.topic_owners import refuse_shared_topics
from streamtable.graph.topic_settings import settings_of_topics
from streamtable_admin.declared import Declared, DeclaredGroup, DeclaredTopic, Defaults

Groups = Sequence[Group[Any, Any]]
_CLOCKS: tuple[Literal["event", "wall", "call"], ...] = ("event", "wall", "call")
_LINE_CHARACTERS = 120


def declaration_of(groups: Groups, defaults: Defaults) -> Declared:
    """Return the declaration of these groups, and of the topics that they do not imply.

    Streams whose records are dated by the times of events are kept until they are deleted by hand or purged, and tables of
    others are compacted. Inputs from outside keep the broker's settings.

    Raises:
        GraphError: A topic would belong to two of the groups.
    """
    refuse_shared_topics(groups)
    implied = {topic for group in groups for topic in _implied(group)}
    settings = settings_of_topics(groups)
    others = [name for group in groups for name in _others(group) if name not in implied]
    topics = {name: DeclaredTopic(config=dict(settings.get(name, {}))) for name in dict.fromkeys(others)}
    return Declared(
        defaults=defaults, topics=dict(topics), groups={group.name: _declared(group) for group in groups}
    )


def yaml_of(declared: Declared) -> str:
    """Return the text of the file. Default values are omitted, except for partitions and replicas."""
    content = {
        "defaults": declared.defaults.model_dump(),
        **declared.model_dump(exclude_defaults=True, exclude={"defaults"}),
    }
    return yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=_LINE_CHARACTERS)


def _implied(group: Group[Any, Any]) -> list[str]:
    loop = [group.loop.stream.name] if group.loop else []
    return [*group.tables, *loop, group.dead_letters, group.retry, group.visits_topic]


def _others(group: Group[Any, Any]) -> list[str]:
    inputs, outputs = ([edge.stream.name for edge in edges] for edges in (group.inputs, group.outputs))
    tables = [*(join.table.name for join in group.joins), *(lookup.table.name for lookup in group.lookups)]
    return [*inputs, *outputs, *tables]


def _declared(group: Group[Any, Any]) -> DeclaredGroup:
    loop = group.loop.stream.name if group.loop else None
    return DeclaredGroup(
        inputs=[edge.stream.name for edge in group.inputs if edge.stream.name != loop],
        purges=[edge.stream.name for edge in group.inputs if edge.purge],
        joins=[edge.table.name for edge in group.joins],
        lookups=[edge.table.name for edge in group.lookups],
        outputs=list(dict.fromkeys(edge.stream.name for edge in group.outputs)),
        table=group.persist is not None,
        loop=loop is not None,
        visits=bool(group.visits),
        once=IDS in group.named_tables,
        changes=HANDLED in group.named_tables,
        states=[state.name for state in group.states],
        timers=[clock for clock in _CLOCKS if TIMER_TABLES[clock] in group.named_tables],
        rows_evolve=group.rows_evolve,
    )
