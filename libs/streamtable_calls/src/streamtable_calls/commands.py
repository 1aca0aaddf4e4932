"""`streamtable calls`: list the pending calls of a group, try them now, and drop them.

The command line loads this as its entry point `calls` in the group `streamtable.commands`.
"""

import time
from typing import Annotated

import typer

from streamtable.base.topics import legal_name
from streamtable_admin.errors import NotFound
from streamtable_admin.text import count, duration
from streamtable_calls.commands_to_group import CallCommand
from streamtable_calls.operate import ListedCall, documents, drop_stopped, listed, send
from streamtable_cli.decoding import Graph, Schemas, decoder_of
from streamtable_cli.groups import GroupName
from streamtable_cli.output import AsJson, AsJsonLines, note, show_json, show_json_line, show_table
from streamtable_cli.reset import refuse_unconfirmed
from streamtable_cli.session import session_of

Name = Annotated[
    str | None, typer.Argument(metavar="NAME", help="The name of a `Call`; all unless it is given.")
]
Ids = Annotated[
    list[str] | None,
    typer.Option(
        "--id", metavar="ID", help="Only the call with this id, as `list` shows it; may be repeated."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
ERROR_CHARACTERS = 80

app = typer.Typer(
    no_args_is_help=True,
    help="Pending calls: requests to APIs that groups have made, and that have no result.",
)


@app.command("list")
def list_command(
    ctx: typer.Context,
    group: GroupName,
    name: Name = None,
    *,
    schemas: Schemas = None,
    graph: Graph = None,
    as_json: AsJsonLines = False,
) -> None:
    """List the pending calls of a group: attempts, next attempt, last error, and age by the event time of the record."""
    decoder, now = decoder_of(schemas, graph), time.time()
    found = _found(ctx, group, name, None)
    table = f"{group}-table"  # its keys are of the group
    if as_json:
        for document in documents(found, lambda key: decoder.key(table, key).document(), now):
            show_json_line(document)
        return
    show_table(
        ("id", "call", "key", "attempts", "next attempt", "age", "last error"),
        (
            (
                each.id,
                each.call,
                str(decoder.key(table, each.key)),
                each.pending.attempts,
                f"in {duration(wait)}" if (wait := each.waits_seconds(now)) else "now",
                "-" if (age := each.age_seconds(now)) is None else duration(age),
                each.pending.error.strip()[:ERROR_CHARACTERS],
            )
            for each in found
        ),
    )
    note(f"{count(len(found), 'call')} pending")


@app.command("retry-now")
def retry_now(
    ctx: typer.Context, group: GroupName, name: Name = None, *, ids: Ids = None, as_json: AsJson = False
) -> None:
    """Let pending calls that wait for their next attempt try again at once: when the group runs, or as soon as it does.

    The order of the calls of a key, their number of attempts and all limits stay. The command is a record in the group's retry
    topic, and takes effect with a commit of the group.
    """
    now = time.time()
    found = [each for each in _found(ctx, group, name, ids) if each.waits_seconds(now)]
    with session_of(ctx).cluster() as cluster:
        send(cluster, group, CallCommand.RETRY_NOW, found)
    _report(group, found, "to be tried now", as_json=as_json)


@app.command("drop")
def drop(
    ctx: typer.Context,
    group: GroupName,
    name: Name = None,
    *,
    ids: Ids = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete pending calls: they have no result, and their handlers are not called. A request that runs may still have its effect.

    A group that runs drops them in one of its commits. Of a group that does not run they are deleted from its table, also if its
    program does not have the call any more.
    """
    found = _found(ctx, group, name, ids)
    if found and not yes:
        note(f"{count(len(found), 'call')} of group {group} would be dropped")
        refuse_unconfirmed(yes=yes, as_json=as_json)
    with session_of(ctx).cluster() as cluster:
        described = cluster.describe_groups([group]).get(group)
        if described is not None and described.members:
            send(cluster, group, CallCommand.DROP, found)
            what = "to be dropped by the group"
        else:
            drop_stopped(cluster, group, found)
            what = "dropped"
    _report(group, found, what, as_json=as_json)


def _found(ctx: typer.Context, group: str, name: str | None, ids: list[str] | None) -> list[ListedCall]:
    legal_name(group, "group")
    with session_of(ctx).cluster() as cluster:
        found = listed(cluster, group, lambda each: name is None or each.call == name)
    if ids is None:
        return found
    if missing := sorted({*ids} - {each.id for each in found}):
        raise NotFound(f"group {group!r} has no pending call {missing[0]!r}")
    return [each for each in found if each.id in ids]


def _report(group: str, calls: list[ListedCall], what: str, *, as_json: bool) -> None:
    if as_json:
        show_json({"group": group, "calls": [each.id for each in calls]})
    else:
        note(f"{count(len(calls), 'call')} of group {group} {what}")
