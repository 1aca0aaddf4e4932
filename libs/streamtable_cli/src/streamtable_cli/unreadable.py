"""Rows of a group's tables that its codecs cannot decode: views leave them out, and joins stop at them."""

from collections.abc import Iterator
from typing import Any

from streamtable import Group, Table
from streamtable.errors import PoisonRecord
from streamtable.kafka.admin import KafkaAdmin
from streamtable.types import TopicPartition
from streamtable_cli.findings import Finding, ok, problem
from streamtable_cli.output import count
from streamtable_cli.reading import read_to
from streamtable_cli.session import Session, places_of

NEWEST = 20_000
"""Offsets of each partition that are looked at, from its end: a doctor is asked for an answer in seconds."""
_NAMED = 3

ADVICE = (
    "find out which program wrote it, then write its key again with the table's codec, or delete it (a record with the "
    "key and no value)"
)


def rows(session: Session, admin: KafkaAdmin, group: Group[Any, Any]) -> Iterator[Finding]:
    """Look at the newest rows of the tables that a group keeps, joins and looks up. Raises `RetryLater`."""
    known = admin.topic_partitions()
    tables = [group.table] if group.persist is not None else []
    tables += [edge.table for edge in (*group.joins, *group.lookups)]
    for table in tables:
        if table.name in known:
            yield _judged(session, admin, table, known[table.name])


def _judged(session: Session, admin: KafkaAdmin, table: Table[Any, Any], partitions: int) -> Finding:
    marks = admin.watermarks_known(places_of(table.name, partitions))
    ends = {place: mark.high for place, mark in marks.items()}
    starts = {place: max(mark.low, mark.high - NEWEST) for place, mark in marks.items()}
    found: dict[
        tuple[int, bytes | None], int
    ] = {}  # by partition and key, the offset of the newest record if it is bad
    looked = 0
    for batch in read_to(session, admin, starts, ends):
        looked += len(batch)
        for key, value, offset in zip(batch.keys, batch.values, batch.offsets, strict=True):
            found.pop((batch.partition, key), None)
            if not _readable(table, key, value):
                found[batch.partition, key] = offset
    subject = f"rows of {table.name}"
    if not found:
        return ok(subject, f"the newest {count(looked, 'record')} can be decoded")
    places = [TopicPartition(table.name, partition) for partition, _ in found]
    named = [f"{place}@{offset}" for place, offset in zip(places, found.values(), strict=True)][:_NAMED]
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return problem(
        subject,
        f"{count(len(found), 'row')} of the newest {count(looked, 'record')} cannot be decoded: {', '.join(named)}{more}",
        ADVICE,
    )


def _readable(table: Table[Any, Any], key: bytes | None, value: bytes | None) -> bool:
    """A tombstone is, and so is a record without a key, which is no row."""
    if key is None or value is None:
        return True
    try:
        table.key.decode(key)
        table.value.decode(value)
    except PoisonRecord:
        return False
    return True
