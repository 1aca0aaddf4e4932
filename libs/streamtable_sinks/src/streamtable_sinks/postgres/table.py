"""The table that a sink writes: its columns, the missing ones, and the statements that write it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg
import structlog
from psycopg import sql

from streamtable.errors import ConfigurationError, Rejected
from streamtable_sinks.postgres.errors import copied_line, streamtable_error
from streamtable_sinks.postgres.rows import CopiedRows, Values
from streamtable_sinks.postgres.types import Column
from streamtable_sinks.target import Changes

log = structlog.get_logger()

_WRITTEN: Final = sql.Identifier("pg_temp", "streamtable_written")
_DELETED: Final = sql.Identifier("pg_temp", "streamtable_deleted")
_COLUMNS: Final = """
    SELECT attname, (WITH RECURSIVE base(type, modifier, dims, depth) AS (SELECT atttypid, atttypmod, '', 0 UNION ALL
        SELECT CASE typtype WHEN 'd' THEN typbasetype ELSE typelem END, CASE typtype WHEN 'd' THEN typtypmod ELSE modifier END,
        dims || CASE typtype WHEN 'd' THEN '' ELSE '[]' END, depth + 1 FROM base JOIN pg_type ON pg_type.oid = base.type
        WHERE typbasetype NOT IN (0, 'json'::regtype, 'jsonb'::regtype) OR (typtype = 'b' AND typcategory = 'A'))
    SELECT format_type(type, modifier) || dims FROM base ORDER BY depth DESC LIMIT 1), attnotnull AND NOT atthasdef AND attidentity = ''
    FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
"""With the type that a domain, or a domain of parts of an array, is made of. A domain of JSON takes texts, as any unknown type."""
_IDENTITY: Final = """
    SELECT format('%%I.%%I, oid %%s', nspname, relname, pg_class.oid)
    FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE pg_class.oid = %s::regclass"""
_UNIQUE: Final = """
    SELECT 1 FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY ((indkey::smallint[])[0:indnkeyatts - 1])
    WHERE indrelid = to_regclass(%s) AND indisunique AND indimmediate AND indisvalid AND indpred IS NULL AND indexprs IS NULL
    GROUP BY indexrelid HAVING array_agg(attname::text ORDER BY attname) = %s"""

Session = psycopg.Connection[Any]


@dataclass(frozen=True)
class TargetTable:
    """A table in PostgreSQL.

    Attributes:
        name: The name, with the schema if it is not in the search path.
        key: The columns of the key; none: rows are appended.
    """

    name: str
    key: tuple[str, ...]

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(*self.name.split("."))

    # ---- at the start ----------------------------------------------------------------------------------------------

    def create(self, session: Session, columns: Sequence[Column]) -> None:
        """Create the table unless it is there; without the right to create one that is there already."""
        if self.columns(session):
            return
        parts = [f"{_quoted(each.name)} {each.type}{' NOT NULL' * each.required}" for each in columns]
        if self.key:
            parts.append(f"PRIMARY KEY ({', '.join(map(_quoted, self.key))})")
        statement = f"CREATE TABLE IF NOT EXISTS {self.identifier.as_string()} ({', '.join(parts)})"
        session.execute(statement)

    def identity(self, session: Session) -> str:
        """Return the name with the schema, whatever the search path is, and the oid: a table that is created again has another."""
        ((found,),) = session.execute(_IDENTITY, (self.identifier.as_string(),)).fetchall()
        return str(found)

    def columns(self, session: Session) -> Mapping[str, Column]:
        """Return the columns of the table; none if there is no such table."""
        found = session.execute(_COLUMNS, (self.identifier.as_string(),)).fetchall()
        return {name: Column(name, kind, required) for name, kind, required in found}

    def check(
        self, session: Session, needed: Sequence[Column] | None, *, typed: bool
    ) -> Mapping[str, Column]:
        """Compare the table with what its source needs. Returns its columns.

        Args:
            session: The session.
            needed: The columns that the source needs; None: they are not known.
            typed: Whether they have types as the database names them, so that others are worth a warning.

        Raises:
            ConfigurationError: It lacks a column or the key; the message has the statements that add them.
        """
        there = self.columns(session)
        if not there:
            raise ConfigurationError(f"there is no table {self.name!r}: create it, or give create=True")
        known = {*there, *(column.name for column in needed or ())}
        alter = f"ALTER TABLE {self.identifier.as_string()}"
        ddl = [f"{alter} ADD COLUMN {_quoted(name)} ...;" for name in self.key if name not in known]
        if needed is not None:
            names = {each.name for each in needed}
            unfilled = [each for each in there.values() if each.required and each.name not in names]
            both = [(there[each.name], each.type) for each in needed if typed and each.name in there]
            missing = [each for each in needed if each.name not in there]
            ddl += [f"{alter} ADD COLUMN {_quoted(each.name)} {each.type};" for each in missing]
            ddl += [f"{alter} ALTER COLUMN {_quoted(each.name)} DROP NOT NULL;" for each in unfilled]
            for column, kind in [(column, kind) for column, kind in both if column.type != kind]:
                change = f"{alter} ALTER COLUMN {_quoted(column.name)} TYPE {kind};"
                fields = {"table": self.name, "column": column.name, "type": column.type, "ddl": change}
                log.warning("column has another type", **fields)
        named = (self.identifier.as_string(), sorted(self.key))
        if self.key and not session.execute(_UNIQUE, named).fetchone():
            ddl.append(f"{alter} ADD PRIMARY KEY ({', '.join(map(_quoted, self.key))});")
        if ddl:
            raise ConfigurationError(
                f"table {self.name!r} does not have what its source needs. This would add it:\n"
                + "\n".join(ddl)
            )
        return there

    # ---- a batch ---------------------------------------------------------------------------------------------------

    def write(self, session: Session, names: Sequence[str], rows: CopiedRows) -> None:
        """Write rows in the open transaction. Raises `Rejected` with the offset of a row that COPY has refused."""
        if not self.key:
            self._copy(session, self.identifier, names, rows.written, rows.of)
            return
        if rows.of:
            self._stage(session, _WRITTEN, names)
            self._copy(session, _WRITTEN, names, rows.written, rows.of)
        if rows.deleted:
            self._stage(session, _DELETED, self.key)
            self._copy(session, _DELETED, self.key, rows.deleted, ())
            both = [sql.SQL("gone.{0} = kept.{0}").format(sql.Identifier(name)) for name in self.key]
            same = sql.SQL(" AND ").join(both)
            found = sql.SQL("SELECT FROM {} AS kept, {} AS gone WHERE {}").format(_WRITTEN, _DELETED, same)
            if rows.of and session.execute(found).fetchone() is not None:
                # As texts without regard to case: which of the two counts, their order says, in batches of their own.
                raise Rejected(
                    "keys of rows to write and to delete differ, and PostgreSQL takes them for equal"
                )
            deletion = sql.SQL("DELETE FROM {} AS kept USING {} AS gone WHERE {}")
            session.execute(deletion.format(self.identifier, _DELETED, same))
        if rows.of:
            session.execute(self._merge(names))

    def _stage(self, session: Session, stage: sql.Identifier, names: Sequence[str]) -> None:
        """Create the temporary table of rows to merge, unless this session has it: without any constraint."""
        ddl = "CREATE TEMP TABLE IF NOT EXISTS {} ON COMMIT DELETE ROWS AS SELECT {} FROM {} WITH NO DATA"
        session.execute(sql.SQL(ddl).format(stage, _listed(names), self.identifier))

    def _merge(self, names: Sequence[str]) -> sql.Composed:
        others = [name for name in names if name not in self.key]
        new = sql.SQL(", ").join(sql.SQL("EXCLUDED.{}").format(sql.Identifier(name)) for name in others)
        action = sql.SQL("UPDATE SET ({}) = ROW ({})" if others else "NOTHING").format(_listed(others), new)
        merge = sql.SQL("INSERT INTO {0} ({1}) SELECT {1} FROM {2} ON CONFLICT ({3}) DO {4}")
        return merge.format(self.identifier, _listed(names), _WRITTEN, _listed(self.key), action)

    def _copy(
        self,
        session: Session,
        into: sql.Identifier,
        names: Sequence[str],
        rows: Iterable[Values],
        of: Changes,
    ) -> None:
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(into, _listed(names))
        try:
            with session.cursor().copy(statement) as copy:
                write = copy.write_row
                for row in rows:
                    write(row)
        except psycopg.Error as error:
            found, line = streamtable_error(error, self.name), copied_line(error)
            if isinstance(found, Rejected) and line is not None and 0 <= line < len(of):
                found.offset = of[line].offset
            raise found from error


def _listed(names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _quoted(name: str) -> str:
    return sql.Identifier(name).as_string()
