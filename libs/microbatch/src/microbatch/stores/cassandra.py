"""Rows in Cassandra: the number of a write is its timestamp, and Cassandra keeps the value with the newest one.

This needs no condition and no consensus round (lightweight transactions cost four round trips): a zombie's write is
accepted but never visible. All statements of a batch are sent before the first answer is awaited.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from cassandra import (
    AuthenticationFailed,
    ConsistencyLevel,
    DriverException,
    InvalidRequest,
    OperationTimedOut,
    RequestExecutionException,
    Unauthorized,
)
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.policies import (
    DCAwareRoundRobinPolicy,
    ExponentialReconnectionPolicy,
    FallthroughRetryPolicy,
    RoundRobinPolicy,
    TokenAwarePolicy,
)
from cassandra.protocol import ErrorMessage, RequestValidationException
from cassandra.query import BatchStatement, BatchType

from microbatch.stores.port import OWN, Found, Row, WriteResult, tenant_name
from streamtable.errors import ConfigurationError, RetryLater, SerializationError

_IN_FLIGHT = 256
_KEYS_A_READ = 50
_ROWS_A_WRITE = 10
_BYTES_A_WRITE = 4_000
_CHANGE_S = 30.0
_RECONNECT_S = (1.0, 5.0)  # the first and the longest pause before reconnecting to a node that is down
_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")
_REFUSED = (InvalidRequest, Unauthorized, AuthenticationFailed, RequestValidationException)
# A guardrail's error: it has the code of an invalid request, but passes when there is space again.
_FULL = "disk usage exceeds failure threshold"
_TOO_LARGE = "exceeds allowed maximum"
_LOST = (
    RequestExecutionException,
    ErrorMessage,  # overloaded, bootstrapping, internal error: the client has no specific exceptions for these
    OperationTimedOut,
    NoHostAvailable,
    DriverException,
    ConnectionException,
    OSError,
)


class CassandraDriver:
    """A tenant's rows in one table. It connects at the first call.

    Args:
        hosts: Some addresses of the cluster.
        keyspace: The keyspace of the table.
        table: The table, as created by `create`.
        tenant: The tenant of the rows.
        port: The CQL port.
        datacenter: The local datacenter; None if the cluster has only one.
        user: The user name; None without authentication.
        password: The password of the user.
        ttl: The time to live of a row after its last write, in whole seconds; None: unlimited. Ledger rows have none.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        *,
        keyspace: str,
        table: str,
        tenant: str,
        port: int = 9042,
        datacenter: str | None = None,
        user: str | None = None,
        password: str | None = None,
        ttl: int | None = None,
    ) -> None:
        self._tenant = tenant_name(tenant)
        self._table = f"{identifier(keyspace)}.{identifier(table)}"
        self.ttl: float | None = ttl
        # Reads and writes at a quorum overlap, so an acknowledged write is read. Retries are up to the caller.
        profile = ExecutionProfile(
            consistency_level=ConsistencyLevel.LOCAL_QUORUM,
            retry_policy=FallthroughRetryPolicy(),
            load_balancing_policy=TokenAwarePolicy(
                DCAwareRoundRobinPolicy(datacenter) if datacenter else RoundRobinPolicy()
            ),
        )
        login = PlainTextAuthProvider(user, password) if user else None
        # A new cluster object for each attempt to connect: a failed one cannot be reused.
        self._make_cluster: Callable[[float], Any] = lambda timeout: Cluster(
            list(hosts),
            port=port,
            auth_provider=login,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            # The client's default pauses double up to ten minutes: a node that is back would be ignored for that long.
            reconnection_policy=ExponentialReconnectionPolicy(*_RECONNECT_S, max_attempts=None),
            connect_timeout=timeout,
            control_connection_timeout=timeout,
            prepare_on_all_hosts=False,
            monitor_reporting_enabled=False,
        )
        self._session: Any = None
        self._prepared: dict[str, Any] = {}

    def create(self, replicas: Mapping[str, int], *, forgets_after: int = 864_000) -> None:
        """Create keyspace and table if they are missing. Existing ones are left as they are.

        Args:
            replicas: The number of replicas by datacenter.
            forgets_after: How many seconds a deleted row rejects lower numbers (`gc_grace_seconds`).
        """
        keyspace, _, _ = self._table.partition(".")
        counts = "".join(f", '{name}': {int(count)}" for name, count in replicas.items())
        place = f"{{'class': 'NetworkTopologyStrategy'{counts}}}"
        columns = "tenant text, key blob, data blob, PRIMARY KEY ((tenant, key))"
        grace = f"WITH gc_grace_seconds = {int(forgets_after)}"
        for statement in (
            f"CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {place}",
            f"CREATE TABLE IF NOT EXISTS {self._table} ({columns}) {grace}",
        ):
            self.ask(statement)

    @property
    def place(self) -> tuple[str, str]:
        """Keyspace and table."""
        keyspace, _, table = self._table.partition(".")
        return keyspace, table

    def ask(self, statement: str, values: Sequence[str] = (), timeout: float = _CHANGE_S) -> list[Any]:
        """Return the rows of one statement. Raises `RetryLater` or `ConfigurationError` like the methods of `Driver`."""
        session = self._connected(timeout)
        found = self._result(session.execute_async(statement, tuple(values) or None, timeout=timeout).result)
        if isinstance(found, str):
            raise RetryLater(found)
        return list(found)

    def read(self, keys: Sequence[bytes], timeout: float) -> Found:
        text = f"SELECT key, data, WRITETIME(data) FROM {self._table} WHERE tenant = ? AND key IN ?"  # noqa: S608 - identifiers
        session = self._connected(timeout)
        query = self._prepare(session, text)
        parts = [keys[at : at + _KEYS_A_READ] for at in range(0, len(keys), _KEYS_A_READ)]
        answers, failed = self._ask(
            session, [(part, query.bind((self._tenant, part))) for part in parts], timeout
        )
        return Found({key: Row(number, data) for answer in answers for key, data, number in answer}, failed)

    def write(self, rows: Mapping[bytes, bytes | None], number: int | None, timeout: float) -> WriteResult:
        stamp, stamps = ("", ()) if number is None else (" AND TIMESTAMP ?", (number,))
        put = f"INSERT INTO {self._table} (tenant, key, data) VALUES (?, ?, ?) USING TTL ?{stamp}"  # noqa: S608 - identifiers
        using = "" if number is None else " USING TIMESTAMP ?"
        delete = f"DELETE FROM {self._table}{using} WHERE tenant = ? AND key = ?"  # noqa: S608 - identifiers
        session = self._connected(timeout)
        asked = []
        for part in _groups(rows):
            batch = BatchStatement(BatchType.UNLOGGED)
            for key in part:
                if (data := rows[key]) is None:
                    batch.add(self._prepare(session, delete), (*stamps, self._tenant, key))
                else:
                    # 0: unlimited, even with a table default
                    ttl = 0 if key.startswith(OWN) or self.ttl is None else self.ttl
                    batch.add(self._prepare(session, put), (self._tenant, key, data, ttl, *stamps))
            asked.append((part, batch))
        return WriteResult(self._ask(session, asked, timeout)[1])

    def flush(self, timeout: float) -> None:
        """Do nothing: a write in Cassandra is visible at once."""

    def close(self) -> None:
        if self._session is not None:
            self._session.cluster.shutdown()

    def _ask(
        self, session: Any, asked: Sequence[tuple[Sequence[bytes], Any]], timeout: float
    ) -> tuple[list[Any], dict[bytes, str]]:
        """Return the rows of each statement, and the keys of failed statements with the reason."""
        until = time.monotonic() + timeout
        answers: list[Any] = []
        failed: dict[bytes, str] = {}
        for at in range(0, len(asked), _IN_FLIGHT):
            left = max(0.001, until - time.monotonic())
            part = asked[at : at + _IN_FLIGHT]
            sent = [session.execute_async(statement, timeout=left) for _, statement in part]
            for (keys, _), each in zip(part, sent, strict=True):
                answer = self._result(each.result)
                if isinstance(answer, str):
                    failed.update(dict.fromkeys(keys, answer))
                else:
                    answers.append(answer)
        return answers, failed

    def _connected(self, timeout: float) -> Any:
        if self._session is None:
            cluster: Any = self._make_cluster(timeout)
            try:
                self._session = cluster.connect()
            except _LOST as error:
                reasons = error.errors.values() if isinstance(error, NoHostAvailable) else ()
                if any(isinstance(reason, AuthenticationFailed) for reason in reasons):
                    raise ConfigurationError(f"Cassandra refuses: {error}") from error
                raise RetryLater(f"Cassandra: {error}") from error
            finally:
                if self._session is None:
                    cluster.shutdown()
        return self._session

    def _prepare(self, session: Any, text: str) -> Any:
        if text not in self._prepared:
            found = self._result(lambda: session.prepare(text))
            if isinstance(found, str):
                raise RetryLater(found)
            self._prepared[text] = found
        return self._prepared[text]

    def _result(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except _REFUSED as error:
            if _FULL in str(error):
                return f"Cassandra: {error}"
            if _TOO_LARGE in str(error):
                raise SerializationError(f"Cassandra rejects a row because of its size: {error}") from error
            raise ConfigurationError(
                f"Cassandra rejects the request: {error} (only `create` creates keyspace and table)"
            ) from error
        except _LOST as error:
            return f"Cassandra: {str(error) or type(error).__name__}"


def _groups(rows: Mapping[bytes, bytes | None]) -> Iterator[list[bytes]]:
    """Split the keys of rows into messages below Cassandra's warning thresholds for batch size."""
    group: list[bytes] = []
    size = 0
    for key, data in rows.items():
        more = len(key) + len(data or b"")
        if group and (len(group) == _ROWS_A_WRITE or size + more > _BYTES_A_WRITE):
            yield group
            group, size = [], 0
        group.append(key)
        size += more
    if group:
        yield group


def identifier(name: str) -> str:
    """Return the name if it is a CQL identifier that needs no quotes."""
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"{name[:100]!r}: give 1 to 48 lower-case letters, digits and underscores")
    return name
