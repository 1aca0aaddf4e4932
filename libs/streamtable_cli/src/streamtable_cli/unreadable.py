"""Checks whether the newest rows of a group's tables can be decoded: views leave out those that cannot, joins fail on them.

The tables of a group given by --graph are decoded with its own codecs. For a group that is known only by name, the rows
of `<group>-table` are decoded with the schemas that they name, as in Avro's single-object encoding: if at least one row
names a known schema, all must.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from streamtable import Group, Table
from streamtable.base.message import prefix_header, with_prefixes
from streamtable.base.types import RecordBatch, TopicPartition
from streamtable.errors import DeserializationError
from streamtable_admin.cluster import Cluster
from streamtable_admin.decode import Decoder
from streamtable_admin.findings import Finding, ok, problem, warning
from streamtable_admin.reading import read_to
from streamtable_admin.text import count

NEWEST = 5_000
"""The number of offsets at the end of each partition that are read, so that the check takes seconds for any table."""
_NAMED = 3

ADVICE = "find out who wrote them (streamtable topics tail), then write each key again with the table's codec, or delete it"
ADVICE_WITHOUT_CODEC = f"decode them with the table's own codec (--graph); {ADVICE}"

Readable = Callable[[bytes, bytes], bool]
"""Returns whether an encoded key and an encoded value can be decoded."""


def of_graph(cluster: Cluster, group: Group[Any, Any], newest: int) -> Iterator[Finding]:
    """Check the tables that a group keeps, joins and looks up. Raises `RetryLater`."""
    known = cluster.admin.topic_partitions()
    tables: list[Table[Any, Any]] = [group.table] if group.persist is not None else []
    tables += map(group.state_table, group.states)
    tables += [edge.table for edge in group.joins] + [edge.table for edge in group.lookups]
    for table in {each.name: each for each in tables if each.name in known}.values():
        found = _look(cluster, table.name, newest, _readable_by(table), prefix_header(table.value))
        if found.unreadable:
            yield problem(f"rows of {table.name}", found.fact, ADVICE)
        else:
            yield ok(f"rows of {table.name}", f"{found.looked_at} can be decoded")


def of_name(cluster: Cluster, group: str, decoder: Decoder, newest: int) -> Iterator[Finding]:
    """Check the table of a group whose codecs are not known. Raises `RetryLater`."""
    topic = f"{group}-table"
    if topic not in cluster.admin.topic_partitions():
        return
    found = _look(cluster, topic, newest, lambda _, value: decoder.names_schema(value))
    if not found.records:
        return
    if not found.readable:
        fact = f"not decoded: no row in {found.looked_at} names a known schema; see --graph and --schemas"
        yield ok(f"rows of {topic}", fact)
    elif found.unreadable:
        yield warning(f"rows of {topic}", found.fact, ADVICE_WITHOUT_CODEC)
    else:
        yield ok(f"rows of {topic}", f"{found.looked_at} can be decoded by the schemas that they name")


@dataclass(slots=True)
class _Found:
    """The result of decoding the newest records of a table's topic.

    Attributes:
        whole: Whether these are all records of the topic.
        records: The number of records that were read, including tombstones.
        readable: The number of records that can be decoded, including those whose key was written again.
        unreadable: The offset of each key's newest record, if that cannot be decoded, by partition and key.
    """

    topic: str
    newest: int
    whole: bool
    records: int
    readable: int
    unreadable: dict[tuple[int, bytes], int]

    def add(self, batch: RecordBatch, readable: Readable) -> None:
        """Count records. Records without a key are not rows, and those without a value are tombstones."""
        self.records += len(batch)
        for key, value, offset in zip(batch.keys, batch.values, batch.offsets, strict=True):
            if key is None:
                continue
            self.unreadable.pop((batch.partition, key), None)
            if value is None:
                continue
            if readable(key, value):
                self.readable += 1
            else:
                self.unreadable[batch.partition, key] = offset

    @property
    def looked_at(self) -> str:
        if self.whole:
            return f"the whole topic ({count(self.records, 'record')})"
        return (
            f"the newest {count(self.records, 'record')} (the last {self.newest} offsets of each partition)"
        )

    @property
    def fact(self) -> str:
        places = sorted((partition, offset) for (partition, _), offset in self.unreadable.items())
        named = [f"{TopicPartition(self.topic, partition)}@{offset}" for partition, offset in places[:_NAMED]]
        more = f" and {len(places) - _NAMED} more" if len(places) > _NAMED else ""
        return (
            f"{count(len(places), 'row')} cannot be decoded: {', '.join(named)}{more}; read {self.looked_at}"
        )


def _look(cluster: Cluster, topic: str, newest: int, readable: Readable, header: str = "") -> _Found:
    """Decode the newest records, whose header of this name may hold the prefixes of their values."""
    marks = cluster.admin.watermarks_known(cluster.partitions(topic))
    ends = {place: mark.high for place, mark in marks.items()}
    starts = {place: max(mark.low, mark.high - newest) for place, mark in marks.items()}
    whole = all(start == marks[place].low for place, start in starts.items())
    found = _Found(topic, newest, whole, records=0, readable=0, unreadable={})
    for batch in read_to(cluster, starts, ends):
        found.add(with_prefixes(batch, header), readable)
    return found


def _readable_by(table: Table[Any, Any]) -> Readable:
    def readable(key: bytes, value: bytes) -> bool:
        try:
            table.key.decode(key)
            table.value.decode(value)
        except DeserializationError:
            return False
        return True

    return readable
