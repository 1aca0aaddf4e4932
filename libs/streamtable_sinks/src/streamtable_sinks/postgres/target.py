"""PostgreSQL as a target: rows and position in one database transaction."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

import psycopg

from streamtable.errors import ConfigurationError, Rejected, RetryLater, StreamtableError
from streamtable_sinks.columns import key_maker, key_part, refuse_partial_key, row_maker
from streamtable_sinks.postgres import positions
from streamtable_sinks.postgres.errors import streamtable_error
from streamtable_sinks.postgres.rows import JSON_TYPES, MakeKey, MakeRow, RowMaker
from streamtable_sinks.postgres.table import Session, TargetTable
from streamtable_sinks.postgres.types import Column, changed, columns_of
from streamtable_sinks.target import Changes, SinkPartition, SinkSource, TakenPartition, TargetOfOneSink

_CONNECT_S: Final = 10
_TCP_TIMEOUT_MS: Final = 30_000


class Postgres(TargetOfOneSink):
    """A table in PostgreSQL, written exactly once.

        Sink("revenue-out", REVENUE.table, Postgres(url, "revenue", key=("shop",)))

    A batch is one transaction: the position in `streamtable_positions`, which is compared and moved, and the rows. With a key
    rows are inserted, updated and deleted; without one they are appended.

    Args:
        url: The URL of the database, `postgresql://user:password@host:port/database`, or a connection string of libpq.
        table: The table, with its schema if that is not in the search path: `sales.revenue`.
        key: The columns of the key, which need a primary key or a unique index: their names, or a function of a record's key
            for each. By name, a key that is a record or a named tuple gives its field; another key is the value of the only
            column, or a tuple with a value for each; of `ConnectKey` by its names. Empty: rows are appended, which only a stream does.
        columns: Makes the other columns of a row from a record's key and value. All rows have the same columns. Default: the
            fields of the value; the column `value` if it is not a record.
        types: The SQL types of the columns, by name. Default: those of the codecs.
        create: Whether to create the table if it is missing.
        lock_timeout: The seconds that it waits for a former owner in the middle of a transaction, before that one's session
            is ended.
        statement_timeout: The seconds that a statement may take; then half of the batch is tried.

    Raises:
        ConfigurationError: The arguments contradict each other.
    """

    def __init__(
        self,
        url: str,
        table: str,
        *,
        key: Sequence[str] | MakeKey = (),
        columns: MakeRow | None = None,
        types: Mapping[str, str] | None = None,
        create: bool = False,
        lock_timeout: float = 5.0,
        statement_timeout: float = 60.0,
    ) -> None:
        if isinstance(key, str):
            raise ConfigurationError(f"key={key!r}: give a tuple of names, ({key!r},)")
        names = tuple(key)
        self._url = url
        self._table = TargetTable(table, names)
        self._key = (
            key if isinstance(key, Mapping) else {name: partial(key_part, names, name) for name in names}
        )
        self._by_name = not isinstance(key, Mapping)
        self.replaces_rows = bool(names)
        self._columns, self._types, self._create = columns, types, create
        self._timeouts = {"lock_timeout": lock_timeout, "statement_timeout": statement_timeout}
        self._rows = RowMaker(self._key, columns, {})
        self._identity = ""  # of the table, when a partition was taken last
        self._connected: Session | None = None
        self._stages_are_old = False  # created by an earlier batch

    def open(self, source: SinkSource) -> None:
        if source.is_table and not self._table.key:
            raise ConfigurationError(
                f"sink {source.sink!r} writes the table {source.topic!r}, whose rows change and are deleted: name the key "
                f"columns of {self._table.name!r} with key="
            )
        if source.is_table and self._by_name:
            refuse_partial_key(source.key, self._table.key)
        needed = self._needed(source)
        if self._create and needed is None:
            raise ConfigurationError(
                f"table {self._table.name!r} cannot be created, as the types of its columns are not known: give types="
            )
        with self._session() as session:
            with session.transaction():
                positions.lock_creation(session)
                positions.create(session)
                if self._create and needed is not None:
                    self._table.create(session, needed)
            there = self._table.check(session, needed, typed=self._types is None)
        derived = (columns_of(source.value, "value") if self._columns is None else None) or ()
        for name, kind, given in changed([each for each in derived if each.name not in self._key], there):
            raise ConfigurationError(
                f"column {name!r} of table {self._table.name!r} has the type {kind}, which would change the values of the source, "
                f"of type {given}: give it that type, or make values of the other one with columns="
            )
        types = {each.name: each.type for each in there.values()}
        structured = {name for name, kind in types.items() if kind in JSON_TYPES}
        self._rows = RowMaker(
            self._key,
            self._columns,
            types,
            row_of=row_maker(source.value, types, structured),
            key_row_of=key_maker(source.key, self._table.key) if self._by_name else None,
            exact={each.name for each in derived if types.get(each.name) == each.type},
            whole_key=self._by_name and len(self._key) == 1,
            deletes=source.is_table,
        )

    def take(self, place: SinkPartition, owner: str) -> TakenPartition:
        with self._session() as session:
            self._identity = self._table.identity(session)
            return positions.take(session, place, owner, self._identity)

    def write(self, place: SinkPartition, epoch: int, start: int | None, end: int, changes: Changes) -> None:
        try:
            self._write(place, epoch, start, end, changes)
        except Rejected:
            if not self._stages_are_old:
                raise
            # The temporary tables have the columns and types of the time when they were created, which may be others now.
            self.close()
            self._write(place, epoch, start, end, changes)
        self._stages_are_old = self._stages_are_old or bool(self._table.key and changes)

    def _write(self, place: SinkPartition, epoch: int, start: int | None, end: int, changes: Changes) -> None:
        with self._session() as session:
            try:
                with session.transaction():
                    positions.move(session, place, epoch, start, end, self._identity)
                    if changes:
                        before = self._rows.names
                        rows = self._rows.rows(changes)  # which knows the columns then
                        if self._stages_are_old and before not in {(), self._rows.names}:
                            raise Rejected("the rows have other columns than before")  # repeated by `write`
                        self._table.write(session, self._rows.names, rows)
            except (StreamtableError, psycopg.Error):
                raise
            except Exception as error:
                raise self._rows.blamed(changes, error) from error

    def __repr__(self) -> str:
        return f"Postgres({self._table.name!r})"

    def close(self) -> None:
        connected, self._connected = self._connected, None
        self._stages_are_old = False
        if connected is not None:
            connected.close()

    def _needed(self, source: SinkSource) -> Sequence[Column] | None:
        """Return the columns that the source needs; None if they are not known."""
        if self._types is not None:
            return [Column(name, kind) for name, kind in self._types.items()]
        of_value = None if self._columns is not None else columns_of(source.value, "value")
        of_key = columns_of(source.key, self._table.key[0]) if len(self._table.key) == 1 else None
        if of_value is None or (self._table.key and of_key is None):
            return None
        keys = [column for column in of_key or () if column.name in self._table.key]
        return [*keys, *(column for column in of_value if column.name not in self._table.key)]

    @contextmanager
    def _session(self) -> Iterator[Session]:
        """Connect unless it is connected; after an error other than a refusal the next call connects again."""
        try:
            if self._connected is None or self._connected.closed:
                self.close()
                self._connected = self._new_session()
                for name, seconds in self._timeouts.items():
                    value = f"{int(seconds * 1000)}ms"
                    self._connected.execute("SELECT set_config(%s, %s, false)", (name, value))
            yield self._connected
        except BaseException as error:
            found = streamtable_error(error, self._table.name) if isinstance(error, psycopg.Error) else error
            if isinstance(found, RetryLater) or not isinstance(found, StreamtableError):
                self.close()  # in the middle of a statement, perhaps
            if found is error:
                raise
            raise found from error

    def _new_session(self) -> Session:
        try:
            return psycopg.connect(
                self._url,
                autocommit=True,
                application_name="streamtable-sink",
                connect_timeout=_CONNECT_S,
                tcp_user_timeout=_TCP_TIMEOUT_MS,
            )
        except psycopg.ProgrammingError:
            # The error of libpq quotes the URL, with the password.
            raise ConfigurationError("not the URL of a PostgreSQL, as postgresql://user@host/name") from None
