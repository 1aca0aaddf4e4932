"""The meaning of PostgreSQL's errors to a sink, by their SQLSTATE."""

import re
from typing import Final

import psycopg

from streamtable.errors import ConfigurationError, Rejected, RetryLater, StreamtableError
from streamtable_sinks.target import BatchTooSlow

_ROWS_FAULT: Final = ("21", "22", "23", "44", "54", "P0")
"""Two rows of one key in a batch, data, constraints, views with a check, limits, raised by triggers."""
_SETUP: Final = ("0A", "28", "3D", "3F", "42")
"""Not supported, login, database, schema, syntax and rights; not read-only, as a primary is after it has become a standby."""
_CANCELED: Final = "57014"
"""A statement has taken longer than `statement_timeout`, or an operator has ended it."""
_LINE: Final = re.compile(r"COPY \S+, line (\d+)(?:, column ([^:]+))?")


def streamtable_error(error: psycopg.Error, table: str) -> StreamtableError:
    """Return the error to raise for one of the client."""
    state, diag = error.sqlstate, error.diag
    if state is None:
        if isinstance(error, psycopg.DataError | psycopg.ProgrammingError | psycopg.NotSupportedError):
            return Rejected(f"a value cannot be sent to PostgreSQL: {error}")  # found by the client
        return RetryLater(f"PostgreSQL does not answer: {' '.join(str(error).split())}")
    text = f"SQLSTATE {state}{_place(diag, table)}: {diag.message_primary}"
    if state.startswith(_ROWS_FAULT):
        return Rejected(text)
    if state.startswith(_SETUP):
        return ConfigurationError(f"PostgreSQL refuses to write table {table!r}: {text}")
    kind = BatchTooSlow if state == _CANCELED else RetryLater
    return kind(f"PostgreSQL cannot write at the moment: {text}")


def copied_line(error: psycopg.Error) -> int | None:
    """Return the number of the row, from 0, at which a COPY failed; None if it is not known."""
    found = _LINE.search(error.diag.context or "")
    return int(found[1]) - 1 if found else None


def _place(diag: psycopg.errors.Diagnostic, table: str) -> str:
    found = _LINE.search(diag.context or "")
    column = diag.column_name or (found[2] if found else None)
    constraint = f", constraint {diag.constraint_name}" if diag.constraint_name else ""
    return f", table {table}{f', column {column}' if column else ''}{constraint}"
