"""`streamtable table`: rows of a table, read from its changelog without a running service or local state."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from streamtable import Long
from streamtable.base.partitioner import murmur2
from streamtable.base.ports import CanonicalKeys, Codec, VersionedKeys
from streamtable.base.types import TopicPartition
from streamtable_admin.cluster import Cluster
from streamtable_admin.decode import Decoder
from streamtable_admin.errors import NotFound, Refused
from streamtable_admin.lag import readable
from streamtable_admin.reading import follow, read_to
from streamtable_admin.records import TopicRecord, record_at, records_of
from streamtable_admin.text import at, count, duration, printable
from streamtable_cli.decoding import Graph, KeyType, Schemas, decoder_of, key_bytes
from streamtable_cli.output import AsJson, AsJsonLines, note, show_json, show_json_line
from streamtable_cli.session import CommandSession, session_of

app = typer.Typer(no_args_is_help=True, help="Tables: their rows, read from the changelog topic.")

Table = Annotated[str, typer.Argument(metavar="TABLE", help="The table's topic: <group>-table.")]
KeyIs = Annotated[KeyType | None, typer.Option("--key-type", help="How keys in arguments are encoded.")]
Prefix = Annotated[str | None, typer.Option(metavar="TEXT", help="Only keys that begin with this.")]

ELSEWHERE = "; other partitions may have rows of this key, if this is the table of a state: see `streamtable table scan`"


@dataclass(frozen=True)
class Keys:
    """A range of keys: by prefix, and from `start` up to, not including, `end`, in the order of bytes."""

    prefix: bytes = b""
    start: bytes = b""
    end: bytes | None = None

    def contains(self, key: bytes) -> bool:
        return key.startswith(self.prefix) and self.start <= key and (self.end is None or key < self.end)


@dataclass(frozen=True)
class Reading:
    """The arguments that the commands of this module share: a table, its decoder, and the type of keys."""

    session: CommandSession
    table: str
    decoder: Decoder
    codec: Codec[Any] | None
    key_type: KeyType | None

    def key(self, text: str) -> bytes:
        return key_bytes(text, self.key_type, self.codec)

    def prefix(self, text: str | None) -> bytes:
        """Return how the selected keys begin. Raises `Refused` if no key of this type begins with another one."""
        if not text:
            return b""
        codec = Long() if self.key_type is KeyType.LONG else None if self.key_type else self.codec
        if isinstance(codec, CanonicalKeys | VersionedKeys | Long):
            raise Refused(
                f"no key of {self.table!r} begins with another one, as {codec!r} encodes them: filter the output instead"
            )
        return self.key(text)

    def place(self, key: bytes, partitions: int) -> TopicPartition:
        """Return the partition of a key, as the graph says; without a graph by murmur2."""
        return TopicPartition(self.table, self.decoder.hashes.get(self.table, murmur2)(key) % partitions)

    def document(self, record: TopicRecord) -> dict[str, Any]:
        return {
            "key": self.decoder.key(self.table, record.key, record.headers).document(),
            "value": self.decoder.value(self.table, record.value, record.headers).document(),
            "partition": record.place.partition,
            "offset": record.offset,
            "changed": at(record.timestamp) or None,
        }

    def line(self, record: TopicRecord) -> str:
        key = self.decoder.key(self.table, record.key, record.headers)
        value = self.decoder.value(self.table, record.value, record.headers)
        return printable(f"{key}: {'deleted' if record.value is None else value}")

    def rows(
        self, cluster: Cluster, places: list[TopicPartition], selected: Callable[[bytes], bool]
    ) -> tuple[dict[tuple[bytes, int], TopicRecord], dict[TopicPartition, int]]:
        """Return the last records, including tombstones, by key and partition, and the end offset of each partition.

        The rows of a state are in the partitions of the tasks that have written them: several may have rows of a key.
        """
        marks = cluster.admin.watermarks(places)
        starts, ends = ({place: mark[side] for place, mark in marks.items()} for side in (0, 1))
        rows: dict[tuple[bytes, int], TopicRecord] = {}
        reached: dict[TopicPartition, int] = {}
        for batch in read_to(cluster, starts, ends, reached=reached):
            for index, key in enumerate(batch.keys):
                if key is not None and selected(key):
                    rows[key, batch.partition] = record_at(batch, index)
        return rows, reached


def _reading(
    ctx: typer.Context, table: str, schemas: Schemas, graph: str | None, key_type: KeyType | None
) -> Reading:
    decoder = decoder_of(schemas, graph)
    return Reading(session_of(ctx), table, decoder, decoder.keys.get(table), key_type)


def _elsewhere(table: str) -> str:
    """Return where else rows of a key may be: the rows of a group's own table are in the partitions of their keys."""
    return "" if table.endswith("-table") else ELSEWHERE


@app.command("get")
def get(
    ctx: typer.Context,
    table: Table,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Of the row.")],
    *,
    key_type: KeyIs = None,
    schemas: Schemas = None,
    graph: Graph = None,
    as_json: AsJson = False,
) -> None:
    """Show one row. Exit code 1 if the row does not exist or was deleted.

    Only the key's partition is read. The table of a state may have rows of the key in other partitions: `scan` shows all.
    """
    reading = _reading(ctx, table, schemas, graph, key_type)
    encoded = reading.key(key)
    with reading.session.cluster() as cluster:
        place = reading.place(encoded, len(cluster.partitions(table)))
        asked_at = time.monotonic()
        rows, ends = reading.rows(cluster, [place], lambda each: each == encoded)
    age = time.monotonic() - asked_at
    record = rows.get((encoded, place.partition))
    elsewhere = _elsewhere(table)
    if record is None:
        doubt = elsewhere if graph else f"; by another partitioner it is found with --graph{elsewhere}"
        raise NotFound(f"table {table!r} has no row {key!r} in {place}, read up to {ends[place]}{doubt}")
    if record.value is None:
        raise NotFound(f"row {key!r} was deleted {at(record.timestamp)} ({place}@{record.offset}){elsewhere}")
    if as_json:
        show_json({**reading.document(record), "position": ends[place], "age_seconds": round(age, 3)})
        return
    print(reading.line(record))
    note(
        f"changed {at(record.timestamp) or 'at an unknown time'} by {place}@{record.offset}; read up to {ends[place]}, "
        f"the end {duration(age)} ago{elsewhere}"
    )


@app.command("scan")
def scan(
    ctx: typer.Context,
    table: Table,
    *,
    prefix: Prefix = None,
    start: Annotated[str | None, typer.Option("--from", metavar="KEY", help="From this key on.")] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="KEY", help="Up to this key, not including it.")
    ] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="The maximum number of rows.")] = None,
    key_type: KeyIs = None,
    schemas: Schemas = None,
    graph: Graph = None,
    as_json: AsJsonLines = False,
) -> None:
    """Show rows in the order of their keys' bytes. The whole changelog is read.

    The table of a state may have a row of a key in each partition, as each task keeps its own.
    """
    reading = _reading(ctx, table, schemas, graph, key_type)
    keys = Keys(
        reading.prefix(prefix),
        reading.key(start) if start is not None else b"",
        reading.key(end) if end is not None else None,
    )
    if keys.end is not None and keys.end <= keys.start:
        raise Refused(
            f"--to {end!r} is not after --from {start!r} in the order of bytes (numbers below 0 come last)"
        )
    with reading.session.cluster() as cluster:
        places = cluster.partitions(table)
        asked_at = time.monotonic()
        rows, _ = reading.rows(cluster, places, keys.contains)
    age = time.monotonic() - asked_at
    live = [record for _, record in sorted(rows.items()) if record.value is not None]
    for record in live[:limit]:
        if as_json:
            show_json_line(reading.document(record))
        else:
            print(reading.line(record))
    shown = len(live[:limit])
    more = f" of {len(live)}" if shown < len(live) else ""
    note(
        f"{shown}{more} {'row' if shown == 1 and not more else 'rows'} of {count(len(places), 'partition')}, read to the end of {duration(age)} ago"
    )


@app.command("watch")
def watch(
    ctx: typer.Context,
    table: Table,
    *,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Only this row; its current value is shown first.")
    ] = None,
    prefix: Prefix = None,
    key_type: KeyIs = None,
    schemas: Schemas = None,
    graph: Graph = None,
    as_json: AsJsonLines = False,
) -> None:
    """Show rows as they change, from now on, until Ctrl-C."""
    if key is not None and prefix is not None:
        raise typer.BadParameter("--key and --prefix exclude each other")
    reading = _reading(ctx, table, schemas, graph, key_type)

    def show(record: TopicRecord) -> None:
        if as_json:
            show_json_line(reading.document(record))
        else:
            changed = f"{at(record.timestamp)} {record.place}@{record.offset}"
            print(f"{changed} {reading.line(record)}", flush=True)

    with reading.session.cluster() as cluster:
        places = cluster.partitions(table)
        if key is None:
            keys = Keys(reading.prefix(prefix))
            ends = {place: mark.high for place, mark in readable(cluster.admin, places).items()}
        else:
            only = reading.key(key)
            keys = Keys(start=only, end=only + b"\0")
            rows, ends = reading.rows(cluster, [reading.place(only, len(places))], keys.contains)
            for row in rows.values():
                show(row)
            if not rows:
                note(f"there is no row {key!r} yet{_elsewhere(table)}")
        note("watching; press Ctrl-C to end")
        for batch in follow(cluster, ends):
            for record in records_of(batch) if batch else ():
                if record.key is not None and keys.contains(record.key):
                    show(record)
