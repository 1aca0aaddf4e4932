"""`streamtable dead-letters`: what a group could not process: list, look, send again."""

import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from streamtable.deadletter import ERROR, MESSAGE, VALUE_OMITTED
from streamtable.failpoint import failpoint_at, no_failpoint
from streamtable_cli.decode import Decoder, Shown, decoder_of, document_of_headers
from streamtable_cli.groups import GroupName
from streamtable_cli.letters import (
    Filter,
    Letter,
    dead_letters_of,
    filter_of,
    place_named,
    read_letters,
    the_letters,
)
from streamtable_cli.modules import load_group
from streamtable_cli.output import (
    AsJson,
    AsJsonLines,
    at,
    count,
    note,
    one_line,
    printable,
    show_json,
    show_json_line,
    show_table,
)
from streamtable_cli.replay import Replay, replay
from streamtable_cli.session import session_of
from streamtable_cli.tail import Graph, Partitions, Schemas

MESSAGE_CHARS = 80

app = typer.Typer(no_args_is_help=True, help="Dead letters: what a group could not process.")

OriginTopic = Annotated[str | None, typer.Option(metavar="TOPIC", help="Only from this topic.")]
Error = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only with this error, for example PoisonRecord.")
]
Since = Annotated[str | None, typer.Option(metavar="TIME", help="Only from this time on; 2h: two hours ago.")]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Only before this time.")]
Grep = Annotated[
    str | None, typer.Option(metavar="REGEX", help="Only if message, key or value, as shown, match.")
]


@app.command("list")
def list_command(
    ctx: typer.Context,
    group: GroupName,
    *,
    origin_topic: OriginTopic = None,
    error: Error = None,
    since: Since = None,
    until: Until = None,
    partition: Partitions = None,
    grep: Grep = None,
    schemas: Schemas = None,
    graph: Graph = None,
    as_json: AsJsonLines = False,
) -> None:
    """List dead letters, and which of them were replayed. They are named PARTITION:OFFSET."""
    session = session_of(ctx)
    dead_letters_of(group)
    decoder = decoder_of(schemas, load_group(graph) if graph else None)
    wanted = filter_of(origin_topic, error, since, until, grep, time.time())
    with session.admin() as admin:
        letters = read_letters(
            session,
            admin,
            group,
            wanted=lambda each: wanted.wanted(each, decoder),
            partitions=partition or (),
        )
    if as_json:
        for letter in letters:
            show_json_line(letter.document(decoder))
        return
    show_table(
        ("letter", "when", "origin", "attempt", "error", "message", "replayed"),
        (_row(letter) for letter in letters),
    )
    open_ones = sum(letter.replayed is None for letter in letters)
    note(f"{count(len(letters), 'dead letter')}, {open_ones} of them never replayed")


def _row(letter: Letter) -> tuple[Any, ...]:
    origin = letter.origin
    message = printable(letter.header(MESSAGE))
    return (
        letter.name,
        at(letter.time),
        printable(f"{origin.topic}[{origin.partition}]@{origin.offset}") if origin else "unknown",
        origin.attempt if origin else 0,
        printable(letter.header(ERROR)),
        message if len(message) <= MESSAGE_CHARS else message[: MESSAGE_CHARS - 1] + "…",
        at(letter.replayed) if letter.replayed is not None else "-",
    )


@app.command("show")
def show(
    ctx: typer.Context,
    group: GroupName,
    letter: Annotated[str, typer.Argument(metavar="PARTITION:OFFSET", help="As `list` names it.")],
    *,
    schemas: Schemas = None,
    graph: Graph = None,
    as_json: AsJson = False,
) -> None:
    """Show all of one dead letter: the reason, the headers, the bytes, and what they are if that is known."""
    session = session_of(ctx)
    dead_letters_of(group)
    place_named(letter)
    decoder = decoder_of(schemas, load_group(graph) if graph else None)
    with session.admin() as admin:
        (found,) = the_letters(session, admin, group, [letter])
    record = found.record
    raw = {"key_hex": _hex(record.key), "value_hex": _hex(record.value)}
    if as_json:
        show_json({**found.document(decoder), **raw})
        return
    for line in _lines(found, decoder):
        print(printable(line))


def _hex(data: bytes | None) -> str | None:
    return data.hex() if data is not None else None


def _lines(letter: Letter, decoder: Decoder) -> list[str]:
    record, origin = letter.record, letter.origin
    omitted = letter.header(VALUE_OMITTED)
    return [
        f"letter    {record.place}@{record.offset}",
        f"when      {at(letter.time)}",
        f"origin    {f'{origin.topic}[{origin.partition}]@{origin.offset}' if origin else 'unknown'}",
        f"attempt   {origin.attempt if origin else 'unknown'}",
        f"error     {letter.header(ERROR)}",
        f"reason    {letter.header(MESSAGE)}",
        f"replayed  {at(letter.replayed) if letter.replayed is not None else 'never'}",
        f"key       {decoder.key(record.place.topic, record.key, record.headers)}",
        f"key hex   {_hex(record.key)}",
        f"value     {decoder.value(record.place.topic, record.value, record.headers)}",
        f"value hex {_hex(record.value)}{f' (too large: {omitted} bytes are at the origin only)' if omitted else ''}",
        *(
            f"header    {each['name']} = {Shown(each['type'], each['value'])}"
            for each in document_of_headers(record.headers)
        ),
    ]


@app.command("replay")
def replay_command(
    ctx: typer.Context,
    group: GroupName,
    letters: Annotated[
        list[str] | None, typer.Argument(metavar="PARTITION:OFFSET", help="These, as `list` names them.")
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    origin_topic: OriginTopic = None,
    error: Error = None,
    since: Since = None,
    until: Until = None,
    partition: Partitions = None,
    grep: Grep = None,
    again: Annotated[bool, typer.Option("--again", help="Also those that were replayed before.")] = False,
    as_json: AsJson = False,
) -> None:
    """Send dead letters to the group again, by its retry topic.

    Each goes out once, also if this is killed and run again: a letter and the mark that it was sent are one
    transaction. Say which: by name, by filters, or --all.
    """
    session = session_of(ctx)
    dead_letters_of(group)
    decoder = decoder_of()
    filters = (origin_topic, error, since, until, partition, grep)
    ways = [bool(letters), any(each is not None for each in filters), everything]
    if sum(ways) != 1:
        problem = "exclude each other" if any(ways) else "are all missing: say which letters"
        raise typer.BadParameter(f"PARTITION:OFFSET, filters and --all {problem}")
    for name in letters or ():
        place_named(name)
    wanted: Filter = filter_of(origin_topic, error, since, until, grep, time.time())
    failpoint = session.settings.failpoint
    with session.admin() as admin:

        def select() -> list[Letter]:
            if letters:
                return the_letters(session, admin, group, letters, whole=True)
            return read_letters(
                session,
                admin,
                group,
                wanted=lambda each: wanted.wanted(each, decoder),
                partitions=partition or (),
                whole=True,
            )

        done = replay(
            session,
            admin,
            group,
            select=select,
            again=again,
            now=time.time,
            reached=failpoint_at(failpoint) if failpoint else no_failpoint,
        )
    _report(group, done, as_json=as_json)


def _report(group: str, done: Replay, *, as_json: bool) -> None:
    if as_json:
        show_json({"group": group, "sent": _names(done.sent), "replayed_before": _names(done.before)})
        return
    print(f"{count(len(done.sent), 'dead letter')} sent to {group}-retry")
    if done.before:
        note(
            f"{count(len(done.before), 'was', 'were')} replayed before and left out; --again sends also those"
        )
    if done.sent:
        note(f"sent: {one_line(_names(done.sent[:20]))}{' and more' if len(done.sent) > 20 else ''}")  # noqa: PLR2004 - enough


def _names(letters: Sequence[Letter]) -> list[str]:
    return [letter.name for letter in letters]
