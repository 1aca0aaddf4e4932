"""`streamtable dead-letters`: list, show and replay the records that a group could not process."""

import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from streamtable_admin.deadletter_log import (
    DeadLetterLog,
    LoggedDeadLetter,
    Replayed,
    dead_letter_topic,
    failpoint_named,
    parse_name,
)
from streamtable_admin.decode import DecodedValue, Decoder, headers_document
from streamtable_admin.text import at, count, one_line, printable
from streamtable_cli.deadletter_filter import Error, Grep, OriginTopic, Since, Until, filter_of
from streamtable_cli.decoding import Graph, Schemas, decoder_of
from streamtable_cli.groups import GroupName
from streamtable_cli.output import AsJson, AsJsonLines, note, show_json, show_json_line, show_line, show_table
from streamtable_cli.session import session_of
from streamtable_cli.tail import Partitions

MESSAGE_CHARS = 80
NAMES_MAX = 20

app = typer.Typer(no_args_is_help=True, help="Dead letters: records that a group could not process.")


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
    """List dead letters, and when each was replayed. A letter is named PARTITION:OFFSET."""
    session = session_of(ctx)
    dead_letter_topic(group)
    decoder = decoder_of(schemas, graph)
    conditions = filter_of(origin_topic, error, since, until, grep, time.time())
    with session.cluster() as cluster:
        letters = DeadLetterLog(cluster, group).read(
            lambda each: conditions.matches(each, decoder), partitions=partition or ()
        )
    if as_json:
        for letter in letters:
            show_json_line(_document(letter, decoder))
        return
    show_table(
        ("letter", "when", "origin", "attempt", "error", "message", "replayed"),
        (_row(letter) for letter in letters),
    )
    open_ones = sum(letter.replayed is None for letter in letters)
    note(f"{count(len(letters), 'dead letter')}, {open_ones} of them never replayed")


def _document(letter: LoggedDeadLetter, decoder: Decoder) -> dict[str, Any]:
    record = letter.record
    return {
        "letter": letter.name,
        "time": at(letter.time) or None,
        "origin": letter.origin_document(),
        "attempt": letter.origin.attempt if letter.origin else None,
        "error": letter.error or None,
        "message": letter.message or None,
        "key": decoder.key(record.place.topic, record.key, record.headers).document(),
        "value": decoder.value(record.place.topic, record.value, record.headers).document(),
        "value_omitted_bytes": None if letter.omitted_bytes is None else str(letter.omitted_bytes),
        "replayed": at(letter.replayed) if letter.replayed is not None else None,
        "headers": headers_document(record.headers),
    }


def _row(letter: LoggedDeadLetter) -> tuple[Any, ...]:
    origin = letter.origin
    message = printable(letter.message)
    return (
        letter.name,
        at(letter.time),
        printable(f"{origin.topic}[{origin.partition}]@{origin.offset}") if origin else "unknown",
        origin.attempt if origin else 0,
        printable(letter.error),
        message if len(message) <= MESSAGE_CHARS else message[: MESSAGE_CHARS - 1] + "…",
        at(letter.replayed) if letter.replayed is not None else "-",
    )


@app.command("show")
def show(
    ctx: typer.Context,
    group: GroupName,
    letter: Annotated[
        str, typer.Argument(metavar="PARTITION:OFFSET", help="The name of the letter, as `list` shows it.")
    ],
    *,
    schemas: Schemas = None,
    graph: Graph = None,
    as_json: AsJson = False,
) -> None:
    """Show one dead letter in full: error, headers, key and value, decoded and as bytes."""
    session = session_of(ctx)
    dead_letter_topic(group)
    parse_name(letter)
    decoder = decoder_of(schemas, graph)
    with session.cluster() as cluster:
        (found,) = DeadLetterLog(cluster, group).named([letter])
    if as_json:
        raw = {"key_hex": _hex(found.record.key), "value_hex": _hex(found.record.value)}
        show_json({**_document(found, decoder), **raw})
        return
    for line in _lines(found, decoder):
        print(printable(line))


def _hex(data: bytes | None) -> str | None:
    return data.hex() if data is not None else None


def _lines(letter: LoggedDeadLetter, decoder: Decoder) -> list[str]:
    record, origin, size = letter.record, letter.origin, letter.omitted_bytes
    more = "" if size is None else f" (too large: its headers and {size} bytes are at the origin only)"
    return [
        f"letter    {record.place}@{record.offset}",
        f"when      {at(letter.time)}",
        f"origin    {f'{origin.topic}[{origin.partition}]@{origin.offset}' if origin else 'unknown'}",
        f"attempt   {origin.attempt if origin else 'unknown'}",
        f"error     {letter.error}",
        f"reason    {letter.message}",
        f"replayed  {at(letter.replayed) if letter.replayed is not None else 'never'}",
        f"key       {decoder.key(record.place.topic, record.key, record.headers)}",
        f"key hex   {_hex(record.key)}",
        f"value     {decoder.value(record.place.topic, record.value, record.headers)}",
        f"value hex {_hex(record.value)}{more}",
        *(
            f"header    {each['name']} = {DecodedValue(each['type'], each['value'])}"
            for each in headers_document(record.headers)
        ),
    ]


@app.command("replay")
def replay_command(
    ctx: typer.Context,
    group: GroupName,
    letters: Annotated[
        list[str] | None,
        typer.Argument(metavar="PARTITION:OFFSET", help="The letters to replay, as `list` shows them."),
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Replay all letters.")] = False,
    origin_topic: OriginTopic = None,
    error: Error = None,
    since: Since = None,
    until: Until = None,
    partition: Partitions = None,
    grep: Grep = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also replay letters that were replayed before.")
    ] = False,
    schemas: Schemas = None,
    graph: Graph = None,
    as_json: AsJson = False,
) -> None:
    """Replay dead letters: produce them to the group's retry topic.

    Each is replayed once, even if this command is killed and repeated: a letter and its marker are one transaction.
    After a `group reset` to earlier offsets give --since its time: the records of earlier letters are handled again.
    Choose letters by name, by filters, or with --all. --grep selects the letters that `list` shows
    with the same --grep, --graph and --schemas.
    """
    session = session_of(ctx)
    dead_letter_topic(group)
    decoder = decoder_of(schemas, graph)
    filters = (origin_topic, error, since, until, partition, grep)
    ways = [bool(letters), any(each is not None for each in filters), everything]
    if sum(ways) != 1:
        problem = "exclude each other" if any(ways) else "are all missing: choose the letters"
        raise typer.BadParameter(f"PARTITION:OFFSET, filters and --all {problem}")
    for name in letters or ():
        parse_name(name)
    conditions = filter_of(origin_topic, error, since, until, grep, time.time())
    reached = failpoint_named(session.settings.failpoint)
    with session.cluster() as cluster:
        log = DeadLetterLog(cluster, group)

        def select() -> list[LoggedDeadLetter]:
            if letters:
                return log.named(letters, complete=True)
            return log.read(
                lambda each: conditions.matches(each, decoder), partitions=partition or (), complete=True
            )

        done = log.replay(select, again=again, now=time.time, reached=reached)
    _report(group, done, as_json=as_json)


def _report(group: str, done: Replayed, *, as_json: bool) -> None:
    if as_json:
        before, rows = _names(done.before), _names(done.rows)
        show_json({"group": group, "sent": _names(done.sent), "replayed_before": before, "rows": rows})
        return
    show_line(f"{count(len(done.sent), 'dead letter')} sent to {group}-retry")
    if done.before:
        note(
            f"{count(len(done.before), 'was', 'were')} replayed before and left out; --again replays those too"
        )
    if done.rows:
        note(
            f"{count(len(done.rows), 'holds', 'hold')} a timer or another due row, and cannot be replayed: "
            f"{_some(done.rows)}"
        )
    if done.sent:
        note(f"sent: {_some(done.sent)}")


def _some(letters: list[LoggedDeadLetter]) -> str:
    """Return the names of the first of these letters."""
    more = " and more" if len(letters) > NAMES_MAX else ""
    return f"{one_line(_names(letters[:NAMES_MAX]))}{more}"


def _names(letters: Sequence[LoggedDeadLetter]) -> list[str]:
    return [letter.name for letter in letters]
