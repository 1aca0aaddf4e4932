"""`streamtable topics tail`: the records of a topic, decoded as far as anybody knows how."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from streamtable.kafka.admin import KafkaAdmin
from streamtable.lag import readable
from streamtable.types import Headers, RecordBatch, TopicPartition, Watermarks
from streamtable_cli.decode import Decoder, Shown, decoder_of, document_of_headers
from streamtable_cli.modules import load_group
from streamtable_cli.output import AsJsonLines, at, printable, show_json_line
from streamtable_cli.reading import follow, read_to
from streamtable_cli.session import Session, partitions_of, places_of, session_of
from streamtable_cli.times import milliseconds

LAST = 10
OFFSET_MAX = 2**63 - 1

Schemas = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="A folder of Avro schemas (*.avsc, also in its folders); all versions count."
    ),
]
Graph = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:NAME",
        help="A group whose codecs are used for its topics; MODULE:FUNCTION(TEXT) if a function makes it.",
    ),
]
Partitions = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", metavar="N", min=0, help="Only this one; may be repeated."),
]


@dataclass(frozen=True, slots=True)
class Record:
    """A record with its place."""

    place: TopicPartition
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def record_at(batch: RecordBatch, index: int) -> Record:
    return Record(
        batch.place,
        batch.offsets[index],
        batch.timestamp(index),
        batch.keys[index],
        batch.values[index],
        batch.headers(index),
    )


def records_of(batch: RecordBatch) -> Iterator[Record]:
    return (record_at(batch, index) for index in range(len(batch)))


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
        bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")
    ] = False,
    schemas: Schemas = None,
    graph: Graph = None,
    as_json: AsJsonLines = False,
) -> None:
    """Show records that are committed, without joining any group.

    Bytes that cannot be decoded are shown in hex, with the reason. With --last, records are in the order of time over
    all partitions; else in that of each partition.
    """
    given = [
        name
        for name, value in (("--last", last), ("--offset", offset), ("--since", since))
        if value is not None
    ]
    if len(given) > 1:
        raise typer.BadParameter(f"{' and '.join(given)} exclude each other")
    session = session_of(ctx)
    decoder = decoder_of(schemas, load_group(graph) if graph else None)
    now = time.time()
    since_ms = milliseconds(since, now) if since is not None else None
    with session.admin() as admin:
        places = places_of(topic, partitions_of(admin, topic), partition or ())
        marks = readable(admin, places) if follow_on else admin.watermarks(places)
        if since_ms is not None:
            found = admin.offsets_at(places, since_ms)
            starts = {p: marks[p].high if (first := found[p]) is None else first for p in places}
        elif offset is not None:
            starts = {place: min(max(offset, marks[place].low), marks[place].high) for place in places}
        else:
            starts = {place: mark.high for place, mark in marks.items()}
            for record in _last(session, admin, marks, LAST if last is None else last):
                _show(record, decoder, as_json=as_json)
        ends = {place: mark.high for place, mark in marks.items()}
        for batch in read_to(session, admin, starts, ends):
            for record in records_of(batch):
                _show(record, decoder, as_json=as_json)
    if follow_on:
        for new in follow(session, {place: max(starts[place], end) for place, end in ends.items()}):
            for record in records_of(new) if new else ():
                _show(record, decoder, as_json=as_json)


def _last(
    session: Session, admin: KafkaAdmin, marks: Mapping[TopicPartition, Watermarks], count: int
) -> list[Record]:
    """The last records over all partitions. Where gaps (markers, compaction) leave too few, it looks further back."""
    found: dict[TopicPartition, list[Record]] = {}
    asked = dict(marks)
    window = count
    while asked and count:
        starts = {place: max(mark.low, mark.high - window) for place, mark in asked.items()}
        found |= {place: [] for place in asked}
        for batch in read_to(session, admin, starts, {place: mark.high for place, mark in asked.items()}):
            found[batch.place] += records_of(batch)
        asked = {p: mark for p, mark in asked.items() if len(found[p]) < count and starts[p] > mark.low}
        window *= 8
    records = [record for part in found.values() for record in part]
    return sorted(records, key=lambda record: (record.timestamp, record.place, record.offset))[-count:]


def document_of(record: Record, decoder: Decoder) -> dict[str, Any]:
    """A record for programs."""
    topic = record.place.topic
    return {
        "topic": topic,
        "partition": record.place.partition,
        "offset": record.offset,
        "timestamp": at(record.timestamp) or None,
        "key": decoder.key(topic, record.key, record.headers).document(),
        "value": decoder.value(topic, record.value, record.headers).document(),
        "headers": document_of_headers(record.headers),
    }


def _show(record: Record, decoder: Decoder, *, as_json: bool) -> None:
    if as_json:
        show_json_line(document_of(record, decoder))
        return
    topic = record.place.topic
    key: Shown = decoder.key(topic, record.key, record.headers)
    value = decoder.value(topic, record.value, record.headers)
    line = f"{record.place}@{record.offset} {at(record.timestamp) or '-'} {key}: {value}"
    for header in document_of_headers(record.headers):
        line += f" {header['name']}={Shown(header['type'], header['value'])}"
    print(printable(line), flush=True)
