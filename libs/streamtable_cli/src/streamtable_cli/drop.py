"""`streamtable group drop`: removes a version of a group that is no longer needed: its offsets and its topics.

The offsets are deleted first, with a request that the broker rejects while the group has members. A processor that is
started half-way stops with an error: it finds a table without offsets, or missing topics. The dead letters are deleted
last, so that a repeated drop still knows which of them were never replayed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from streamtable import Group
from streamtable.base.topics import legal_name
from streamtable.base.types import Committed, TopicPartition
from streamtable.graph.companion import CALLS
from streamtable_admin.cluster import Cluster
from streamtable_admin.deadletter_log import DeadLetterLog, LoggedDeadLetter
from streamtable_admin.declared import load
from streamtable_admin.errors import NotFound, Refused
from streamtable_admin.offsets import named_tables, unread
from streamtable_admin.text import count
from streamtable_cli.consistent_cut import pending_calls
from streamtable_cli.groups import GroupName
from streamtable_cli.modules import load_groups
from streamtable_cli.output import AsJson, note, show_json, show_line, show_table
from streamtable_cli.reset import (
    CHANGE_S,
    OWN,
    left_tables,
    may_be_states,
    refuse_members,
    refuse_unconfirmed,
)
from streamtable_cli.session import session_of
from streamtable_cli.topics import DECLARED

NAMED_MAX = 20


@dataclass(frozen=True)
class Remains:
    """The offsets and topics of a group that exist.

    Attributes:
        topics: Its own existing topics, with the number of offsets between start and end of each.
        committed: Its committed offsets.
        letters: The dead letters that were never replayed.
        retries: The number of records in the retry topic that the group has not processed.
        calls: The number of its pending calls, and of the records that wait for their next attempt.
    """

    group: str
    topics: Mapping[str, int]
    committed: Mapping[TopicPartition, Committed]
    letters: list[LoggedDeadLetter]
    retries: int
    calls: int


def drop(
    ctx: typer.Context,
    group: GroupName,
    *,
    with_dead_letters: Annotated[
        bool,
        typer.Option(
            "--with-dead-letters", help="Also if some were never replayed or processed, or calls are pending."
        ),
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=f"The file that declares groups, to find those that need this one; {DECLARED} if it exists.",
        ),
    ] = None,
    graph: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE:NAME", help="Another group or flow that may need this one; may be repeated."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove a group: its offsets, its table, and its topics for loop, visits, retries and dead letters.

    Shows what will be deleted and asks for confirmation. Refused while the group has live members, and while another
    group reads or joins its topics, as far as FILE, --graph and live members show; Kafka does not know of views of its
    table. Inputs and outputs stay. Local copies of tables belong to the processes and stay too; the command names their
    folder.
    """
    session = session_of(ctx)
    legal_name(group, "group")
    graphs = [each for spec in graph or () for each in load_groups(spec)]
    file = file or (DECLARED if DECLARED.exists() else None)
    with session.cluster() as cluster:
        refuse_members(cluster, group)
        found = _remains(cluster, group)
        _refuse_needed(cluster, found, _declared(file, graphs, found))
        if not as_json:
            _show(found)
        _refuse_letters(found, given_up=with_dead_letters)
        refuse_unconfirmed(yes=yes, as_json=as_json)
    with session.cluster(at_least=CHANGE_S) as cluster:
        refuse_members(cluster, group)  # the prompt may have been open for a while
        cluster.admin.delete_group(group)
        for topic in found.topics:
            cluster.admin.delete_topic(topic)
        left = may_be_states(cluster, group)
    folder = session.settings.state_dir / group
    if as_json:
        show_json({**_document(found), "local_copies": str(folder)})
    else:
        note(f"group {group} is dropped")
        note(
            f"its processes' copies of tables stay in the state folders of their machines, here {folder}: delete them"
        )
    if left and not found.committed:
        note(
            "it had no offsets, which alone name its state tables: delete the topics that are theirs, "
            + ", ".join(left)
        )
    if file is not None and group in load(file).groups:
        note(
            f"it is still declared in {file}: remove it, or `streamtable topics apply` creates its topics again"
        )


# ---- the remains ----------------------------------------------------------------------------------------------------


def _remains(cluster: Cluster, group: str) -> Remains:
    known = cluster.admin.topic_partitions()
    topics = {}
    committed = cluster.committed(group)
    states = (name for name in [*named_tables(committed), *left_tables(committed)] if name not in OWN)
    for end in dict.fromkeys([*states, *OWN]):
        if (name := f"{group}-{end}") in known:
            marks = cluster.admin.watermarks(cluster.partitions(name))
            topics[name] = sum(mark.high - mark.low for mark in marks.values())
    if not topics and not committed and not cluster.describe_groups([group]):
        raise NotFound(f"there is no group {group!r}: it has no members, no offsets and no topics")
    log = DeadLetterLog(cluster, group)
    letters = log.read(complete=True) if topics.get(log.topic) else []
    retries = cluster.partitions(f"{group}-retry") if f"{group}-retry" in topics else []
    starts = {place: committed[place].next_offset if place in committed else 0 for place in retries}
    return Remains(
        group,
        topics,
        committed,
        [each for each in letters if each.replayed is None],
        sum(unread(cluster, starts).values()),
        sum(pending_calls(cluster, group, dict.fromkeys(range(known.get(f"{group}-{CALLS}", 0)))).values()),
    )


def _declared(file: Path | None, graphs: Iterable[Group[Any, Any]], found: Remains) -> dict[str, str]:
    """Return the declared groups that read topics of this one, with the topic of each."""
    reads: dict[str, list[str]] = {}
    if file is not None:
        reads = {name: [*group.reads, *group.lookups] for name, group in load(file).groups.items()}
    for group in graphs:
        lookups = [edge.table.name for edge in group.lookups]
        reads[group.name] = [*reads.get(group.name, ()), *group.input_topics, *lookups]
    return {
        name: topic
        for name, topics in reads.items()
        for topic in topics
        if name != found.group and topic in found.topics
    }


def _refuse_needed(cluster: Cluster, found: Remains, declared: Mapping[str, str]) -> None:
    needed = dict(declared)
    names = [each.name for each in cluster.retried(cluster.admin.groups) if each.name != found.group]
    for name, other in cluster.describe_groups(names).items():
        read = {place.topic for member in other.members for place in member.partitions}
        if shared := sorted(read & found.topics.keys()):
            needed[name] = shared[0]
    if needed:
        by = ", ".join(f"{name} reads {topic}" for name, topic in sorted(needed.items()))
        raise Refused(f"another group needs group {found.group!r}: {by}. Change or drop that one first")


def _refuse_letters(found: Remains, *, given_up: bool) -> None:
    if given_up or not (found.letters or found.retries or found.calls):
        return
    parts = []
    if found.letters:
        names = ", ".join(letter.name for letter in found.letters[:NAMED_MAX])
        more = ", ..." if len(found.letters) > NAMED_MAX else ""
        parts.append(f"{count(len(found.letters), 'dead letter')} never replayed ({names}{more})")
    if found.retries:
        parts.append(f"{count(found.retries, 'record')} in {found.group}-retry that it has not processed")
    if found.calls:
        parts.append(count(found.calls, "pending call or retried record", "pending calls or retried records"))
    lists = ["dead-letters list"] * bool(found.letters or found.retries) + ["calls list"] * bool(found.calls)
    see = " and ".join(f"`streamtable {each} {found.group}`" for each in lists)
    raise Refused(
        f"group {found.group!r} has {' and '.join(parts)}: see {see}, or give --with-dead-letters to delete them too"
    )


# ---- what is shown --------------------------------------------------------------------------------------------------


def _show(found: Remains) -> None:
    show_table(
        ("what goes", "how much"),
        [
            ("offsets", count(len(found.committed), "partition")),
            *((topic, f"at most {count(records, 'record')}") for topic, records in found.topics.items()),
        ],
    )
    if found.letters:
        show_line(f"dead letters never replayed: {count(len(found.letters), 'letter')}")


def _document(found: Remains) -> dict[str, Any]:
    return {
        "group": found.group,
        "offsets": len(found.committed),
        "topics": list(found.topics),
        "dead_letters_never_replayed": [letter.name for letter in found.letters],
        "retries_not_done": found.retries,
        "calls_not_done": found.calls,
    }
