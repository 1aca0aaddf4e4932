"""A change of a row in a database, as Debezium's connectors write it."""

from typing import Any, ClassVar, Generic, TypeVar

from msgspec import Raw, Struct

T = TypeVar("T")


class Source(Struct, frozen=True, kw_only=True):
    """Where a change comes from. What a connector does not say is empty, 0 or None.

    Attributes:
        connector: The kind of the database, such as `postgresql`.
        name: The connector's `topic.prefix`.
        db: The database.
        schema: The schema of the table.
        table: The table.
        ts_ms: The time of the change in the database, in milliseconds since 1970.
        snapshot: How the change was read: "true", "first", "last" and the like in a snapshot, "incremental", or "false".
        lsn: PostgreSQL: the position of the change in the write-ahead log.
        txId: PostgreSQL: the transaction.
        file: MySQL and MariaDB: the binlog file.
        pos: MySQL and MariaDB: the position in it.
        row: MySQL and MariaDB: the number of the row among those of one binlog event.
        gtid: MySQL and MariaDB: the global id of the transaction.
        server_id: MySQL and MariaDB: the server.
    """

    connector: str = ""
    name: str = ""
    db: str | None = ""
    schema: str | None = ""
    table: str | None = ""
    ts_ms: int = 0
    snapshot: str | bool | None = None
    lsn: int | None = None
    txId: int | None = None  # noqa: N815 - the name that the connector writes
    file: str | None = None
    pos: int | None = None
    row: int | None = None
    gtid: str | None = None
    server_id: int | None = None

    @property
    def qualified_table(self) -> str:
        """The table with its schema, or with its database where there are no schemas."""
        return ".".join(part for part in (self.schema or self.db, self.table) if part)


class Transaction(Struct, frozen=True):
    """The place of a change in its transaction, with `provide.transaction.metadata`.

    Attributes:
        id: The id of the transaction.
        total_order: The number of the change among all of the transaction, from 1.
        data_collection_order: The number among those of the same table, from 1.
    """

    id: str
    total_order: int
    data_collection_order: int


class Change(Struct, Generic[T], kw_only=True, rename={"raw_before": "before"}):
    """A change of a row.

    Attributes:
        op: "c" created, "r" read by a snapshot, "u" updated, "d" deleted, "t" truncated, "m" a logical message.
        after: The row after the change; None if it was deleted.
        source: Where the change comes from, with its position.
        transaction: Its place in its transaction; None if the connector does not say.
        ts_ms: When the connector processed the change, in milliseconds since 1970; None if it does not say.
        unavailable: The columns whose values the database did not send, as the change left them alone. `after` is None
            then, and `known` has the others.
        known: The columns of such a row whose values are known, by name.
        raw_before: `before`, encoded; `null` if there is none.
    """

    rows: ClassVar[Any] = None  # the `RowType` of its codec; `Any`, as msgspec evaluates what is written here

    op: str
    after: T | None = None
    source: Source = Source()
    transaction: Transaction | None = None
    ts_ms: int | None = None
    unavailable: tuple[str, ...] = ()
    known: dict[str, Any] | None = None
    raw_before: Raw = Raw(b"null")

    @property
    def before(self) -> T | None:
        """The row before the change; None if the connector does not say.

        With `REPLICA IDENTITY DEFAULT` PostgreSQL sends it only of deleted rows, and of these only the primary key: the other
        columns are null, empty or 0, whatever they were.

        Raises:
            DeserializationError: It does not fit the type of the row, as when such a column cannot be null.
        """
        data = bytes(self.raw_before)
        found: T | None = None if self.rows is None or data == b"null" else self.rows.row(data)
        return found

    @property
    def deletes(self) -> bool:
        """Whether the row is gone after the change."""
        return self.op == "d"


def event_time(change: Change[Any]) -> int:
    """Return the time of a change in its database, in milliseconds since 1970, for `Input(time=)`."""
    return change.source.ts_ms or change.ts_ms or 0
