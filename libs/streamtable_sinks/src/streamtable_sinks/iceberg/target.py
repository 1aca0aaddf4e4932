"""Apache Iceberg as a target: data files, and one commit with them and the position."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from streamtable import Avro
from streamtable.errors import RetryLater
from streamtable_sinks.arrow.rows import ArrowRows, MakeColumns
from streamtable_sinks.arrow.schema import with_micros
from streamtable_sinks.iceberg.commit import committed, write_files
from streamtable_sinks.iceberg.errors import answered
from streamtable_sinks.iceberg.positions import SnapshotPositions
from streamtable_sinks.iceberg.schema import fitted
from streamtable_sinks.target import Changes, SinkPartition, SinkSource, TakenPartition, TargetOfOneSink

_TRIES: Final = 10


class Iceberg(TargetOfOneSink):
    """A table of Apache Iceberg, to which rows are appended exactly once.

        Sink("orders-out", ORDERS, Iceberg(catalog, "lake.orders"), max_records=500_000, max_bytes=256 << 20, max_wait=60)

    A batch is one snapshot: its data files, and the position in its summary. Besides the fields of the value a row has
    `_partition`, `_offset` and `_timestamp` of its record; of a table it has the change, with `_deleted` and the columns of the
    key.

    Args:
        catalog: A catalog of pyiceberg, or the name of one that its configuration has.
        table: The table, with its namespace.
        key: The names of the columns of the key, of a table: one, or one for each part of the key.
        columns: Makes the columns of a row, without the key's, from a record's key and value. Needs `schema`.
        schema: The schema of these columns, of Arrow or Avro. Default: from the codec.
        create: Whether to create the table, and its namespace, if they are missing.
    """

    def __init__(
        self,
        catalog: Catalog | str,
        table: str,
        *,
        key: Sequence[str] = (),
        columns: MakeColumns | None = None,
        schema: pa.Schema | Avro[Any] | None = None,
        create: bool = False,
    ) -> None:
        self._catalog, self._name, self._create = catalog, table, create
        self._rows = ArrowRows(key, columns, schema)
        self._table: Table  # once it is open
        self._own_catalog: Catalog | None = None  # of this name

    def open(self, source: SinkSource) -> None:
        needed = self._rows.open(source)
        with answered():
            self._table = self._found(self._catalog_client(), needed)
        self._rows.schema = fitted(self._name, needed, self._table.schema().as_arrow())

    def _found(self, catalog: Catalog, needed: pa.Schema) -> Table:
        """Load the table, and create it if it is missing. Nothing is created, and no right to do so needed, if it is there."""
        try:
            return catalog.load_table(self._name)
        except (NoSuchTableError, NoSuchNamespaceError):
            if not self._create:
                raise
        catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
        created = pa.schema([each.with_type(with_micros(each.type)) for each in needed])
        return catalog.create_table_if_not_exists(self._name, created)

    def _catalog_client(self) -> Catalog:
        if not isinstance(self._catalog, str):
            return self._catalog
        if self._own_catalog is None:
            self._own_catalog = load_catalog(self._catalog)
        return self._own_catalog

    def take(self, place: SinkPartition, owner: str) -> TakenPartition:
        with answered():
            self._table.refresh()
            for _ in range(_TRIES):
                held = SnapshotPositions.of(self._table.metadata)
                before = held[place]
                topic_id = before.topic_id or place.topic_id
                taken = replace(before, epoch=before.epoch + 1, owner=owner, topic_id=topic_id)
                # A snapshot without files: the commits of a former owner, which assert their parent, fail from now on.
                if committed(self._table, held.changed(place, taken), ()):
                    return TakenPartition(taken.epoch, before.position, before.topic_id, before.owner)
        raise RetryLater("other processes write the table at the same time")

    def write(self, place: SinkPartition, epoch: int, start: int | None, end: int, changes: Changes) -> None:
        rows = self._rows.table(place.partition, changes) if changes else None
        with answered():
            self._moved(place, epoch, start, end)  # else its data files would be for nothing
            files = write_files(self._table, rows) if rows is not None else ()
            for _ in range(_TRIES):
                if committed(self._table, self._moved(place, epoch, start, end), files):
                    return
        raise RetryLater("other processes write the table at the same time")

    def __repr__(self) -> str:
        return f"Iceberg({self._name!r})"

    def close(self) -> None:
        own, self._own_catalog = self._own_catalog, None
        if own is not None:
            own.close()

    def _moved(self, place: SinkPartition, epoch: int, start: int | None, end: int) -> dict[str, str]:
        """Return the properties of a snapshot that moves the position. Raises `Migrated` if the table has another one."""
        held = SnapshotPositions.of(self._table.metadata)
        last = held[place]
        last.check(epoch, start)
        moved = replace(last, position=end, topic_id=place.topic_id if start is None else last.topic_id)
        return held.changed(place, moved)
