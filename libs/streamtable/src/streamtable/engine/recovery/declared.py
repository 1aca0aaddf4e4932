"""The tables that a group keeps as its declarations say: the inputs that reach them, and the meaning of their rows."""

from dataclasses import replace
from typing import Any

from streamtable.base.decoding import codecs_name
from streamtable.base.evolution import without_schemas
from streamtable.base.topics import Stream
from streamtable.graph.group import HANDLED, IDS, STATES, Group, Input
from streamtable.tables.kept import OWN, Keeps, KeptTables, bounded_codecs, bounded_meaning, inner_topic


def kept_tables(group: Group[Any, Any]) -> KeptTables:
    """Return the tables and inner topics of a group, as they are recorded with its offsets."""
    changes = frozenset(edge.table.name for edge in group.changes)
    once = {edge.stream.name: edge.once for edge in group.inputs if edge.once is not None}
    own: list[Keeps] = []
    if group.persist:
        own.append(Keeps(OWN, group.table.name, frozenset(group.input_topics), means=_rows(group)))
    for name in group.named_tables:
        topic = group.named_topic(name)
        if name == IDS:
            means = {each: once[each].meaning for each in once}
            own.append(Keeps(name, topic, frozenset({*once, group.retry}), means=means))
        elif name == HANDLED:
            own.append(Keeps(name, topic, changes))
        elif name != STATES:  # which has a meaning for each state, and comes and goes with them
            own.append(_fed(group, name, name, topic))
    outputs = {edge.stream.name: edge.stream for edge in group.outputs}
    rows = codecs_name(group.key, group.persist.value) if group.persist else ""
    # Where watermarks travel with the records, their timestamps are event times, from whichever source.
    timed = [each for each in group.inputs if group.event_time is not None and not each.watermarks]
    times = {each.stream.name: "timestamps" if each.time is None else "time=" for each in timed}
    own += [_inner(group, outputs[topic]) for topic in group.inner_topics]
    spare = group.spare_metadata
    return KeptTables(group.name, tuple(own), group.version, group.only_joined, rows, times, spare)


def _inner(group: Group[Any, Any], stream: Stream[Any, Any]) -> Keeps:
    """Return an inner topic. Like a table's records, its records may not have been read when a version ends."""
    kept = _fed(group, stream.name, inner_topic(stream.name), stream.name, is_table=False)
    means = bounded_codecs(without_schemas(codecs_name(stream.key, stream.value)))
    return replace(kept, means=dict.fromkeys(kept.fed_by, means))


def _fed(group: Group[Any, Any], fed: str, name: str, topic: str, *, is_table: bool = True) -> Keeps:
    """Return a table that is fed as the compiler of flows says, or by all inputs."""
    if fed not in group.fed:
        return Keeps(name, topic, frozenset(group.input_topics), is_table=is_table)
    found, always = group.fed[fed], {group.retry, group.visits_topic}
    made_of = bounded_meaning(found.made_of)
    return Keeps(name, topic, found.by | always, found.behind, is_table=is_table, made_of=made_of)


def _rows(group: Group[Any, Any]) -> dict[str, str]:
    """Return the meaning of the rows of the group's own table, by input."""
    assert group.persist is not None, "asked for a group with a table"
    codecs = without_schemas(codecs_name(group.key, group.persist.value))
    means = dict.fromkeys(group.input_topics, codecs)
    return means | {edge.stream.name: bounded_meaning(f"{codecs}; {_fold(edge)}") for edge in group.inputs}


def _fold(edge: Input[Any, Any, Any]) -> str:
    return "by a function" if edge.aggregate is None else type(edge.aggregate).__name__


def standby_tables(group: Group[Any, Any]) -> list[str]:
    """Return the tables whose replicas may be ahead of the group: not the joined ones whose changes are handled."""
    handled = {edge.table.name for edge in group.changes}
    return list(group.tables) + [join.table.name for join in group.joins if join.table.name not in handled]
