"""Errors of catalogs and object stores as errors of Streamtable."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyiceberg import exceptions as iceberg
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException

from streamtable.errors import ConfigurationError, RetryLater

_NO_RETRY: Final = (
    iceberg.BadRequestError, iceberg.ForbiddenError, iceberg.NamespaceAlreadyExistsError, iceberg.NoSuchNamespaceError,
    iceberg.NoSuchTableError, iceberg.OAuthError, PermissionError, iceberg.TableAlreadyExistsError, iceberg.UnauthorizedError,
    UnsupportedPyArrowTypeException,
)  # fmt: skip
_RETRY: Final = (OSError, iceberg.RESTError, iceberg.CommitFailedException, iceberg.WaitingForLockException)
_OF_DATABASES: Final = ("OperationalError", "InterfaceError", "TimeoutError", "IntegrityError")
"""Errors of SQLAlchemy, below a SQL catalog: it is not imported, as other catalogs do without it.

An IntegrityError is a race: pyiceberg looks whether a namespace, or a table of the catalog's own, is there, and then creates it.
"""
_DUPLICATES: Final = ("42P07", "42710")
"""PostgreSQL's codes of a table and a type that are there already: it creates a type for each table."""


@contextmanager
def answered() -> Iterator[None]:
    """Raise `RetryLater` if the catalog or the store does not answer, and `ConfigurationError` if a retry cannot help."""
    try:
        yield
    except _NO_RETRY as error:
        raise ConfigurationError(f"Iceberg: {_text(error)}") from error
    except _RETRY as error:
        raise RetryLater(f"Iceberg: {_text(error)}") from error
    except Exception as error:
        if type(error).__module__.startswith("sqlalchemy") and (
            type(error).__name__ in _OF_DATABASES or _sqlstate(error) in _DUPLICATES
        ):
            raise RetryLater(f"Iceberg's catalog: {_text(error)}") from error
        raise


def _sqlstate(error: Exception) -> str | None:
    cause = getattr(error, "orig", None)
    found: str | None = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    return found


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:500]}"
