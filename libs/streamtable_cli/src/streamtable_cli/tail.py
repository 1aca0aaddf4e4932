"""`streamtable topics tail`: the records of a topic, decoded."""

import time
from typing import Annotated, Any

import typer

from streamtable_admin.decode import DecodedValue, Decoder, headers_document
from streamtable_admin.lag import readable
from streamtable_admin.reading import follow, read_to
from streamtable_admin.records import TopicRecord, last_records, records_of, starts_at
from streamtable_admin.text import at, printable
from streamtable_cli.decoding import Graph, Schemas, decoder_of
from streamtable_cli.output import AsJsonLines, show_json_line
from streamtable_cli.session import session_of
from streamtable_cli.times import milliseconds

LAST = 10
OFFSET_MAX = 2**63 - 1

Partitions = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", metavar="N", min=0, help="Only this partition; may be repeated."),
]


def tail(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Its name.")],
    *,
    last: Annotated[
        int | None,
        typer.Option(
            "--last", "-n", metavar="N", min=0, max=100_000, help=f"The last N records (default {LAST})."
        ),
    ] = None,
    offset: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, max=OFFSET_MAX, help="From this offset on, in each partition."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="From this time on: 2026-03-01T12:00:00Z, or 15m for 15 minutes ago."
        ),
    ] = None,
    partition: Partitions = None,
    follow_on: Annotated[
        bool, typer.Option("--follow", "-f", help="Then show new records, until Ctrl-C.")
    ] = False,
    schemas: Schemas = None,
    graph: Graph = None,
    as_json: AsJsonLines = False,
) -> None:
    """Show committed records, without joining a consumer group.

    Bytes that cannot be decoded are shown in hex, with the reason. With --last, records are ordered by time across all
    partitions, otherwise by offset within each partition.
    """
    options = {"--last": last, "--offset": offset, "--since": since}
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise typer.BadParameter(f"{' and '.join(given)} exclude each other")
    session = session_of(ctx)
    decoder = decoder_of(schemas, graph)
    now = time.time()
    since_ms = milliseconds(since, now) if since is not None else None
    with session.cluster() as cluster:
        places = cluster.partitions(topic, partition or ())
        marks = readable(cluster.admin, places) if follow_on else cluster.admin.watermarks(places)
        if since_ms is None and offset is None:
            starts = {place: mark.high for place, mark in marks.items()}
            for record in last_records(cluster, marks, LAST if last is None else last):
                _show(record, decoder, as_json=as_json)
        else:
            starts = starts_at(cluster, marks, offset=offset, time_ms=since_ms or 0)
        ends = {place: mark.high for place, mark in marks.items()}
        for batch in read_to(cluster, starts, ends):
            for record in records_of(batch):
                _show(record, decoder, as_json=as_json)
        if follow_on:
            for new in follow(cluster, {place: max(starts[place], end) for place, end in ends.items()}):
                for record in records_of(new) if new else ():
                    _show(record, decoder, as_json=as_json)


def document_of(record: TopicRecord, decoder: Decoder) -> dict[str, Any]:
    """Return a record as a JSON document."""
    topic = record.place.topic
    return {
        "topic": topic,
        "partition": record.place.partition,
        "offset": record.offset,
        "timestamp": at(record.timestamp) or None,
        "key": decoder.key(topic, record.key, record.headers).document(),
        "value": decoder.value(topic, record.value, record.headers).document(),
        "headers": headers_document(record.headers),
    }


def _show(record: TopicRecord, decoder: Decoder, *, as_json: bool) -> None:
    if as_json:
        show_json_line(document_of(record, decoder))
        return
    topic = record.place.topic
    key: DecodedValue = decoder.key(topic, record.key, record.headers)
    value = decoder.value(topic, record.value, record.headers)
    line = f"{record.place}@{record.offset} {at(record.timestamp) or '-'} {key}: {value}"
    for header in headers_document(record.headers):
        line += f" {header['name']}={DecodedValue(header['type'], header['value'])}"
    print(printable(line), flush=True)
