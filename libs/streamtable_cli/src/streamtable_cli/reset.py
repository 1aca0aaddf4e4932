"""`streamtable group reset`: reset the committed offsets of a group, and empty its table if it has one.

A table belongs to the offsets of its input: with earlier offsets, records count twice, and with later ones they are
missed. So a reset of a group with a table is refused unless the table is emptied too. Its topic is then deleted and
recreated, not emptied with DeleteRecords: only by the new topic id do local copies on other machines, and views, detect
that their content is obsolete (`tables/recovery.py`).

The steps are ordered so that a crash between them does no harm. After the deletion, the committed offsets name a table
position that no longer exists, so a processor stops with `StateLost` until the reset is run again.

The group's own loop, visits and retry topic are set to their ends: pending records there belong to input from before the
reset, and the inputs, read again, produce the loop events again, and still hold the dead letters that were replayed. A joined
table is set like an input, which matters only if its
changes are handled: other copies are loaded to the table's end regardless of offsets (`recovery.plan_join`).
"""

import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer

from streamtable.base.ports import TopicDescription
from streamtable.base.topics import TABLE_CONFIG, legal_name
from streamtable.base.types import Committed, NextOffset, TopicPartition, Watermarks
from streamtable.errors import RetryLater
from streamtable.graph.companion import CALLS, TIMER_TABLES
from streamtable.graph.group import HANDLED, IDS, STATES
from streamtable.tables.kept import left_names
from streamtable_admin.cluster import Cluster
from streamtable_admin.deadletter_log import DeadLetterLog, LoggedDeadLetter
from streamtable_admin.errors import Refused
from streamtable_admin.offsets import TablePosition, named_tables
from streamtable_admin.recreated_inputs import accepted_places, refuse_left_out
from streamtable_admin.text import at, count
from streamtable_cli.groups import GroupName
from streamtable_cli.offset_targets import Move, parse_targets, places_to_reset, target_moves
from streamtable_cli.output import AsJson, note, show_json, show_line, show_table
from streamtable_cli.session import CommandSession, session_of

_Marks = Mapping[TopicPartition, Watermarks]
CHANGE_S = 30.0
BROKERS_DEFAULT = -1
OWN = ("table", IDS, HANDLED, STATES, *TIMER_TABLES.values(), "loop", "visits", "retry", "dead-letters")
"""Suffixes of a group's topics, in the order in which a drop deletes them; its state tables are deleted before them."""
_ENDED = "loop", "visits", "retry"
"""The topics of a group whose records its inputs, when they are read again, produce again or still hold."""


def reset(
    ctx: typer.Context,
    group: GroupName,
    *,
    to: Annotated[
        str,
        typer.Option(
            metavar="WHERE",
            help="earliest, latest, a time (2026-03-01T12:00:00Z, or 2h for two hours ago), or JSON: "
            '{"topic": {"0": 17, "1": "latest"}, "other": "earliest"}; @FILE reads the JSON from a file.',
        ),
    ],
    topic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC", help="Only this topic; may be repeated. Default: all that the group has read."
        ),
    ] = None,
    empty_table: Annotated[
        bool, typer.Option("--empty-table", help="Also delete all rows of the group's table: it is rebuilt.")
    ] = False,
    accept_recreated: Annotated[
        bool,
        typer.Option(
            "--accept-recreated", help="Also if an input was deleted and recreated since the group read it."
        ),
    ] = False,
    accept_purged: Annotated[
        bool,
        typer.Option(
            "--accept-purged",
            help="Also if the beginning of a topic between the groups of a flow was deleted, as what was handled there is.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Reset the offsets of a group, after showing the changes and asking for confirmation.

    The group must have no live members. If it keeps a table, --empty-table is needed, and all partitions of all its
    inputs must be set: the table is rebuilt from there, without the changes that visits made to its rows.

    The records of dead letters from there on are handled again with all others: do not replay these letters as well.

    Records that it sent to other topics stay there. A group that reads them, such as the next one of a flow, gets them
    a second time: reset such groups first, with --to latest --empty-table.

    Its own loop, visits and replayed dead letters are set to their ends unless they are named: the inputs hold the
    replayed records, and unfinished work is dropped. Where only some partitions of its inputs are set, these topics stay
    as they are. A joined table whose changes it handles is set like an input: with earliest, each row is handled as a newly
    inserted row.

    A topic between two groups of a flow does not hold what the group behind it has handled. To process a flow again, reset
    the groups behind such topics first, with --to latest --empty-table, and then the group that reads the flow's streams.
    If a group behind such a topic also reads other streams or tables, give offsets as JSON, with earliest for these:
    '{"shop-by-user": "latest", "orders": "earliest"}'.

    If an input was deleted and recreated, --accept-recreated is needed, and all of its partitions must be set.
    """
    session = session_of(ctx)
    legal_name(group, "group")
    targets = parse_targets(to, topic or [])
    with session.cluster() as cluster:
        refuse_members(cluster, group)
        committed = cluster.committed(group)
        recreated = accepted_places(cluster, group, committed, accepted=accept_recreated)
        read = {*committed, *recreated}  # the broker drops the offsets of deleted topics
        tables = _tables(cluster, group, committed)
        known = cluster.admin.topic_partitions()
        asked = {*places_to_reset(cluster, group, read, targets, topic or [])}
        own = {f"{group}-{name}" for name in _ENDED}
        # With expired offsets it has read nothing, as far as is known; its own topics have their records all the same. Without
        # a table a part of the inputs may be set: the others do not hold the pending records again.
        whole = asked >= {place for place in read if place.topic not in own}
        ended = own & ({*known} if empty_table else {place.topic for place in read if whole})
        ended -= {*(targets or topic or ())}
        pending = {TopicPartition(name, number) for name in ended for number in range(known[name])}
        marks = dict(cluster.admin.watermarks(sorted(asked - pending)))
        moves = target_moves(cluster, to, targets, committed, marks)
        marks |= (ends := cluster.admin.watermarks(pending))
        moves += target_moves(cluster, "latest", None, committed, ends)
        moves.sort(key=lambda move: move.place)
        refuse_left_out(group, recreated, (move.place for move in moves))
        if to != "latest" and not accept_purged:
            again = [m for m in moves if targets is None or m.after < marks[m.place].high]
            _refuse_purged(cluster, group, again, marks)
        _refuse_half(group, tables, committed, moves, cluster, empty_table=empty_table)
        emptied = tables if empty_table else []
        letters = _handled_again(cluster, group, moves, marks, ended)
        if not as_json:
            _show(moves, marks, emptied, ended, len(letters))
        refuse_unconfirmed(yes=yes, as_json=as_json)
        _apply(session, group, moves, emptied)
    if as_json:
        found = {"moves": list(map(_document, moves)), "letters": [letter.name for letter in letters]}
        show_json({"group": group, "emptied": next(iter(emptied), None), "emptied_too": emptied[1:], **found})
    else:
        note(f"the offsets of {count(len(moves), 'partition')} were set")


# ---- refusals -------------------------------------------------------------------------------------------------------


def refuse_members(cluster: Cluster, group: str) -> None:
    found = cluster.describe_groups([group]).get(group)
    if found and found.members:
        members = ", ".join(f"{each.client_id} on {each.host}" for each in found.members[:5])
        raise Refused(
            f"group {group!r} has {count(len(found.members), 'live member')} ({members}): stop them first"
        )


def _tables(cluster: Cluster, group: str, committed: Mapping[TopicPartition, Committed]) -> Sequence[str]:
    """Return the group's tables, its own first, including those whose topics an unfinished reset has deleted."""
    known = cluster.admin.topic_partitions()
    positions = [TablePosition.decode(each.metadata) for each in committed.values()]
    names = ["table", IDS, HANDLED, STATES, *TIMER_TABLES.values()]
    names += [*named_tables(committed), *left_tables(committed)]
    return [
        topic
        for topic in dict.fromkeys(f"{group}-{name}" for name in names)
        if topic in known or any(each and (each.end_of(group, topic) or 0) > 0 for each in positions)
    ]


def left_tables(committed: Mapping[TopicPartition, Committed]) -> Sequence[str]:
    """Return the suffixes of the tables that a group has kept before its last commits, and not at these."""
    positions = [TablePosition.decode(each.metadata) for each in committed.values()]
    return left_names(each.record for each in positions if each is not None)


def may_be_states(cluster: Cluster, group: str) -> list[str]:
    """Return the topics that may be of state tables of a group whose offsets, which name them, have expired."""
    own = {f"{group}-{name}" for name in OWN}
    return sorted(
        name for name in cluster.admin.topic_partitions() if name.startswith(f"{group}-") and name not in own
    )


def _refuse_half(
    group: str,
    tables: Sequence[str],
    committed: Mapping[TopicPartition, Committed],
    moves: list[Move],
    cluster: Cluster,
    *,
    empty_table: bool,
) -> None:
    """Refuse to reset a table without all of its offsets, or offsets without their table."""
    if not tables:
        if empty_table:
            raise Refused(f"--empty-table: group {group!r} keeps no table")
        return
    if not empty_table:
        raise Refused(
            f"group {group!r} keeps a table, {', '.join(tables)}: with other offsets its rows would count records twice or not at "
            "all. Give --empty-table to delete its rows too, so that it is rebuilt from there"
        )
    if not committed:
        note(
            f"the offsets of group {group!r} have expired, and only they name its state tables. Name all of its inputs, and before "
            "you start it delete the topics that are of its state tables: "
            + (", ".join(may_be_states(cluster, group)) or f"there is none that begins with {group}-")
        )
    partitions = cluster.admin.topic_partitions()
    inputs = {place.topic for place in committed}
    needed = {TopicPartition(name, number) for name in inputs for number in range(partitions[name])}
    if left := sorted(needed - {move.place for move in moves}):
        raise Refused(
            f"--empty-table deletes the rows of all partitions, so all inputs must be set; {left[0]} is not"
            + (f" (nor are {len(left) - 1} others)" if len(left) > 1 else "")
        )


def _refuse_purged(cluster: Cluster, group: str, moves: Sequence[Move], marks: _Marks) -> None:
    """Refuse to read again what the group has deleted: a table would be built of the few records that are left."""
    begun = {move.place.topic: move.place for move in moves if marks[move.place].low > 0}
    for name, topic in cluster.admin.describe(begun).items() if begun else ():
        # Records of such a topic are deleted in no other way than by a request.
        kept = {topic.config.get(each) for each in ("retention.ms", "retention.bytes")}
        if kept == {"-1"} and "compact" not in topic.config["cleanup.policy"]:
            low = marks[begun[name]].low
            raise Refused(
                f"the beginning of {name} is gone: what was below offset {low} of partition {begun[name].partition} was deleted "
                f"once it was handled, as between the groups of a flow. Group {group!r} cannot read it again: reset it with "
                "--to latest --empty-table (or, if it reads other topics from the beginning, with offsets as JSON: "
                f'{{"{name}": "latest", ...}}), then the group that writes the topic with --to earliest, which writes all of '
                "it again. --accept-purged: read only what is left"
            )


def refuse_unconfirmed(*, yes: bool, as_json: bool) -> None:
    """Raise `Refused` unless --yes was given, or the person at the terminal agrees."""
    if not yes and (as_json or not sys.stdin.isatty() or not typer.confirm("Do it?", err=True)):
        raise Refused("nothing was changed: give --yes to confirm")


# ---- the reset ------------------------------------------------------------------------------------------------------


def _apply(session: CommandSession, group: str, moves: list[Move], tables: Sequence[str]) -> None:
    with session.cluster(at_least=CHANGE_S) as cluster:
        refuse_members(cluster, group)  # the prompt may have been open for a while
        metadata = ""
        for table in tables:
            empty(cluster, table, partitions=max(move.place.partition for move in moves) + 1)
            metadata = TablePosition(0, exact=True).encode()
        cluster.admin.set_offsets(
            group, {move.place: Committed(NextOffset(move.after), metadata) for move in moves}
        )


def empty(cluster: Cluster, table: str, *, partitions: int) -> None:
    """Delete the topic and create it with the same settings; a missing one gets those of a table.

    Args:
        cluster: The cluster, with a timeout that suffices for changes.
        table: The name of the table's topic.
        partitions: The number of partitions if the topic is missing.

    Raises:
        RetryLater: The broker takes too long. The call can be repeated.
    """
    old = cluster.admin.describe([table]).get(table)
    new = TopicDescription(table, partitions, BROKERS_DEFAULT, TABLE_CONFIG)
    if old is None:
        note(
            f"note: {table} is missing; it is created with {count(partitions, 'partition')} and a table's usual settings"
        )
    else:
        new = TopicDescription(table, old.partitions, old.replication, cluster.admin.own_settings(table))
        cluster.admin.delete_topic(table)
    deadline = time.monotonic() + CHANGE_S
    while True:
        # While the old topic is being deleted, creating it fails with "exists", and for a while neither one exists.
        cluster.admin.create_topics([new])
        end = None
        with suppress(RetryLater):
            found = cluster.admin.describe([table]).get(table)
            if found is not None and (old is None or found.topic_id != old.topic_id):
                places = [TopicPartition(table, number) for number in range(found.partitions)]
                end = max(mark.high for mark in cluster.admin.watermarks(places).values())
        if end == 0:
            return
        if end is not None:
            raise RetryLater(f"{table!r} was not missing, or a producer writes to it; run it again")
        if time.monotonic() > deadline:
            raise RetryLater(f"the broker has not recreated {table!r} within {CHANGE_S:.0f} s; run it again")
        time.sleep(0.2)


def _handled_again(
    cluster: Cluster, group: str, moves: Sequence[Move], marks: _Marks, ended: Collection[str]
) -> Sequence[LoggedDeadLetter]:
    """Return the dead letters that were never replayed, and whose records the group handles again after the moves."""
    after = {move.place: move.after for move in moves if move.place.topic not in ended}
    # Inputs that are read again make loop events and calls again.
    own = (
        {f"{group}-loop", f"{group}-{CALLS}"}
        if any(after[each] < marks[each].high for each in after)
        else set()
    )

    def is_again(letter: LoggedDeadLetter) -> bool:
        origin = letter.origin
        return origin is not None and (
            (origin.topic in own and not letter.holds_row)
            or origin.offset >= after.get(TopicPartition(origin.topic, origin.partition), sys.maxsize)
        )

    log = DeadLetterLog(cluster, group)
    letters = log.read(is_again) if log.topic in cluster.admin.topic_partitions() else []
    return [letter for letter in letters if letter.replayed is None]


def _show(
    moves: list[Move], marks: _Marks, emptied: Sequence[str], ended: Collection[str], letters: int
) -> None:
    show_table(
        ("topic", "partition", "from", "to", "end", "change"),
        (
            (
                *move.place,
                "never" if move.before is None else move.before,
                move.after,
                marks[move.place].high,
                "-" if move.before is None else f"{move.after - move.before:+}",
            )
            for move in moves
        ),
    )
    for topic in sorted({move.place.topic for move in moves if move.place.topic in ended}):
        show_line(f"Pending records in {topic} are dropped: they belong to earlier input.")
    if any(move.before is not None and move.after < move.before for move in moves):
        show_line(
            "Records that it has sent to other topics stay there, and are sent again: a group that reads them, such as "
            "the next one of a flow, counts them twice unless it is reset to latest first, with --empty-table."
        )
    if letters:
        whole = all(move.after <= marks[move.place].low for move in moves if move.place.topic not in ended)
        later = f"with --since {at(int(time.time() * 1000))} a replay takes later ones alone"
        others = "replay others by their names; with --json this command lists the names of these"
        show_line(
            f"{count(letters, 'dead letter')} never replayed: the records are handled again. Replay none of them after the reset, "
            f"as they would count twice: {later if whole else others}."
        )
    for table in emptied:
        show_line(f"All rows of {table} are deleted; local copies are discarded when a process opens them.")
    to_end = (move.place for move in moves if marks[move.place].low < move.after == marks[move.place].high)
    lost = sorted({place.topic for place in to_end} - {*ended})
    if emptied and lost:
        show_line(
            f"The new rows are made without the records that are now in {', '.join(lost)}. A topic between two groups of a flow gets "
            "them again from the group before it. For another one that the rows need, give offsets as JSON, as --help says."
        )


def _document(move: Move) -> dict[str, Any]:
    return {
        "topic": move.place.topic,
        "partition": move.place.partition,
        "from": move.before,
        "to": move.after,
    }
