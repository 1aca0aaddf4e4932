"""`streamtable group`: who is in a group, where it stands, how far it is behind."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from streamtable.kafka.admin import GroupDescription, KafkaAdmin
from streamtable.tables.position import TablePosition
from streamtable.types import Committed, TopicPartition
from streamtable_cli.errors import NotFound
from streamtable_cli.output import AsJson, show_json, show_table
from streamtable_cli.reading import unread
from streamtable_cli.session import Session, committed_of, describe_groups, session_of

app = typer.Typer(no_args_is_help=True, help="Groups: members, offsets and lag; and setting offsets anew.")

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Its name.")]


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a group stands in one partition.

    Attributes:
        committed: None: never.
        end: of the topic.
        lag: records that can be read and were not; None if nothing was committed. See `reading.unread`.
        table: the changelog's position that was committed with the offset; None if the group keeps no table.
    """

    place: TopicPartition
    committed: Committed | None
    end: int
    lag: int | None
    table: TablePosition | None


def group_of(session: Session, admin: KafkaAdmin, name: str) -> GroupDescription:
    """Raises `NotFound`."""
    found = describe_groups(session, admin, [name]).get(name)
    if found is None:
        raise NotFound(f"there is no group {name!r}: it has no members and no offsets")
    return found


def standings_of(session: Session, admin: KafkaAdmin, group: GroupDescription) -> list[Standing]:
    """Of all partitions that have a committed offset or a member."""
    committed = committed_of(session, admin, group.name)
    places = sorted({*committed, *(place for member in group.members for place in member.partitions)})
    marks = admin.watermarks_known(places)
    positions = {place: TablePosition.decode(each.metadata) for place, each in committed.items()}
    keeps_table = any(each and each.changelog for each in positions.values())
    left = unread(
        session,
        admin,
        {place: each.next_offset for place, each in committed.items() if place in marks},
    )
    return [
        Standing(
            place,
            committed.get(place),
            marks[place].high,
            left.get(place),
            positions.get(place) if keeps_table else None,
        )
        for place in places
        if place in marks
    ]


def lag_of(standings: list[Standing]) -> int:
    return sum(each.lag or 0 for each in standings)


@app.command("list")
def list_command(ctx: typer.Context, *, as_json: AsJson = False) -> None:
    """List the groups: state, protocol, members."""
    session = session_of(ctx)
    with session.admin() as admin:
        listed = session.patiently(admin.groups)
        described = describe_groups(session, admin, [group.name for group in listed])
        found = [described.get(group.name, group) for group in listed]
    if as_json:
        show_json(
            [
                {
                    "name": each.name,
                    "state": each.state,
                    "protocol": each.protocol,
                    "members": len(each.members),
                }
                for each in found
            ]
        )
        return
    show_table(
        ("group", "state", "protocol", "members"),
        ((each.name, each.state, each.protocol, len(each.members)) for each in found),
    )


@app.command("describe")
def describe(ctx: typer.Context, group: GroupName, *, as_json: AsJson = False) -> None:
    """Show a group's members, their partitions, its table and its lag."""
    session = session_of(ctx)
    with session.admin() as admin:
        found = group_of(session, admin, group)
        standings = standings_of(session, admin, found)
        table = f"{group}-table" if f"{group}-table" in admin.topic_partitions() else None
    if as_json:
        show_json({**_document(found), "table": table, "lag": lag_of(standings)})
        return
    print(
        f"group {found.name}: {found.state}, protocol {found.protocol}, assignor {found.assignor or '-'}, "
        f"coordinator {found.coordinator}"
    )
    print(f"table {table or '-'}; lag {lag_of(standings)}")
    show_table(
        ("member", "instance", "client", "host", "partitions"),
        (
            (
                each.member_id,
                each.instance_id or "-",
                each.client_id,
                each.host,
                ranges(each.partitions),
            )
            for each in found.members
        ),
    )


@app.command("lag")
def lag(
    ctx: typer.Context,
    group: GroupName,
    *,
    every: Annotated[
        bool, typer.Option("--all", help="Show partitions too that nothing was ever written to.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show how far a group is behind, for each partition and topic, and where its table stands.

    Lag is in records for up to 100 offsets of a partition; beyond that in offsets, and the ends of transactions and
    compaction make it more than there are records. What an open transaction holds back does not count. A table position
    is the changelog's offset that was committed together with the input's. Partitions that nothing was ever written to,
    such as those of most retry topics, are left out; in JSON all are there.
    """
    session = session_of(ctx)
    with session.admin() as admin:
        standings = standings_of(session, admin, group_of(session, admin, group))
    by_topic: dict[str, int] = {}
    for each in standings:
        by_topic[each.place.topic] = by_topic.get(each.place.topic, 0) + (each.lag or 0)
    if as_json:
        show_json(
            {
                "group": group,
                "lag": lag_of(standings),
                "topics": by_topic,
                "partitions": [_standing(each) for each in standings],
            }
        )
        return
    shown = [each for each in standings if every or each.end]
    show_table(
        ("topic", "partition", "committed", "end", "lag", "table position"),
        (
            (
                each.place.topic,
                each.place.partition,
                each.committed.next_offset if each.committed else "never",
                each.end,
                "-" if each.lag is None else each.lag,
                "-"
                if each.table is None
                else f"{each.table.changelog}{'' if each.table.exact else ' or more'}",
            )
            for each in shown
        ),
    )
    for topic in dict.fromkeys(each.place.topic for each in shown):
        print(f"{topic}: lag {by_topic[topic]}")


def ranges(places: Iterable[TopicPartition]) -> str:
    """Partitions in short: `clicks 0-3,7`."""
    parts: dict[str, list[list[int]]] = {}
    for topic, number in sorted(places):
        runs = parts.setdefault(topic, [])
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return "; ".join(
        f"{topic} {','.join(str(low) if low == high else f'{low}-{high}' for low, high in runs)}"
        for topic, runs in parts.items()
    )


def _standing(each: Standing) -> dict[str, Any]:
    return {
        "topic": each.place.topic,
        "partition": each.place.partition,
        "committed": each.committed.next_offset if each.committed else None,
        "end": each.end,
        "lag": each.lag,
        "table_position": each.table.changelog if each.table else None,
        "exact": each.table.exact if each.table else None,
    }


def _document(group: GroupDescription) -> dict[str, Any]:
    return {
        "name": group.name,
        "state": group.state,
        "protocol": group.protocol,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "members": [
            {
                "id": each.member_id,
                "instance": each.instance_id or None,
                "client": each.client_id,
                "host": each.host,
                "partitions": [{"topic": topic, "partition": number} for topic, number in each.partitions],
            }
            for each in group.members
        ],
    }
