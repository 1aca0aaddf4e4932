"""`streamtable group`: the members of a group, its positions and its lag."""

from typing import Annotated, Any

import typer

from streamtable_admin.cluster import GroupDescription
from streamtable_admin.offsets import (
    PartitionOffsets,
    group_named,
    group_offsets,
    known_lag,
    partition_ranges,
)
from streamtable_cli.output import AsJson, show_json, show_line, show_table
from streamtable_cli.session import session_of

app = typer.Typer(no_args_is_help=True, help="Groups: members, committed offsets, lag, and resets.")

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Its name.")]


@app.command("list")
def list_command(ctx: typer.Context, *, as_json: AsJson = False) -> None:
    """List the groups: state, protocol, members."""
    session = session_of(ctx)
    with session.cluster() as cluster:
        listed = cluster.retried(cluster.admin.groups)
        described = cluster.describe_groups([group.name for group in listed])
        found = [described.get(group.name, group) for group in listed]
    rows = [(each.name, each.state, each.protocol, len(each.members)) for each in found]
    if as_json:
        names = ("name", "state", "protocol", "members")
        show_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        show_table(("group", "state", "protocol", "members"), rows)


@app.command("describe")
def describe(ctx: typer.Context, group: GroupName, *, as_json: AsJson = False) -> None:
    """Show a group's members, their partitions, its table and its lag."""
    session = session_of(ctx)
    with session.cluster() as cluster:
        found = group_named(cluster, group)
        offsets = group_offsets(cluster, found)
        table = f"{group}-table" if f"{group}-table" in cluster.admin.topic_partitions() else None
    if as_json:
        show_json({**_document(found), "table": table, "lag": known_lag(offsets)})
        return
    show_line(
        f"group {found.name}: {found.state}, protocol {found.protocol}, assignor {found.assignor or '-'}, "
        f"coordinator {found.coordinator}"
    )
    lag = known_lag(offsets)
    show_line(f"table {table or '-'}; lag {'unknown' if lag is None else lag}")
    show_table(
        ("member", "instance", "client", "host", "partitions"),
        (
            (m.member_id, m.instance_id or "-", m.client_id, m.host, partition_ranges(m.partitions))
            for m in found.members
        ),
    )


@app.command("lag")
def lag(
    ctx: typer.Context,
    group: GroupName,
    *,
    every: Annotated[
        bool, typer.Option("--all", help="Also show partitions that never had a record.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the lag of a group for each partition and topic, and the position of its table.

    Up to 100 offsets of a partition, the lag is counted in records; beyond that in offsets, which exceed the number of
    records because of transaction markers and compaction. Records beyond the last stable offset do not count. The lag
    is unknown (null in JSON) if the group has no committed offset for a partition with records. A table position is the
    changelog offset that was committed together with the input offset. Partitions that never had a record, such as
    those of most retry topics, are left out; JSON has all.
    """
    session = session_of(ctx)
    with session.cluster() as cluster:
        offsets = group_offsets(cluster, group_named(cluster, group))
    by_topic = {
        topic: known_lag(each for each in offsets if each.place.topic == topic)
        for topic in dict.fromkeys(each.place.topic for each in offsets)
    }
    if as_json:
        partitions = [_offsets(each) for each in offsets]
        show_json({"group": group, "lag": known_lag(offsets), "topics": by_topic, "partitions": partitions})
        return
    shown = [each for each in offsets if every or each.end]
    show_table(
        ("topic", "partition", "committed", "end", "lag", "table position"),
        (
            (
                *each.place,
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
        lag = by_topic[topic]
        show_line(f"{topic}: lag {'unknown, a partition has no committed offset' if lag is None else lag}")


def _offsets(each: PartitionOffsets) -> dict[str, Any]:
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
