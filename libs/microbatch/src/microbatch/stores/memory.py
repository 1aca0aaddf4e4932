"""A central store in this process, for tests and single processes; it does not survive the process."""

import threading
from collections.abc import Iterator, Mapping, Sequence

from microbatch.stores.port import Deletion, Found, Row, WriteResult, tenant_name
from microbatch.stores.versions import Head


class MemoryServer:
    """The rows that several drivers in one process share, in place of a server."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.rows: dict[tuple[str, bytes], tuple[int, bytes | None]] = {}


class MemoryDriver:
    """A tenant's rows.

    Args:
        server: The server that holds the rows; None for one that no other driver shares.
        tenant: The tenant that the rows belong to.
    """

    def __init__(self, server: MemoryServer | None = None, *, tenant: str) -> None:
        self._server = server or MemoryServer()
        self._tenant = tenant_name(tenant)

    def read(self, keys: Sequence[bytes], timeout: float) -> Found:  # noqa: ARG002 - it always answers
        found = {}
        with self._server.lock:
            for key in keys:
                number, data = self._server.rows.get((self._tenant, key), (0, None))
                if data is not None:
                    found[key] = Row(number, data)
        return Found(found)

    def write(
        self,
        rows: Mapping[bytes, bytes | None],
        number: int | None,
        timeout: float,  # noqa: ARG002 - it always answers
    ) -> WriteResult:
        refused = set()
        with self._server.lock:
            for key, data in rows.items():
                there, _ = self._server.rows.get((self._tenant, key), (0, None))
                if number is not None and there > number:
                    refused.add(key)
                else:
                    self._server.rows[self._tenant, key] = (number or 0, data)
        return WriteResult(refused=frozenset(refused))

    def deletions(self, timeout: float) -> Iterator[Sequence[Deletion]]:  # noqa: ARG002 - it always answers
        with self._server.lock:
            rows = list(self._server.rows.items())
        heads = [
            (key, number, Head.of(data))
            for (tenant, key), (number, data) in rows
            if tenant == self._tenant and data is not None
        ]
        yield [Deletion(key, number, head.partition) for key, number, head in heads if head and head.deleted]

    def forget(self, deletions: Sequence[Deletion], timeout: float) -> int:  # noqa: ARG002 - it always answers
        gone = 0
        with self._server.lock:
            for key, number, _ in deletions:
                there, _ = self._server.rows.get((self._tenant, key), (0, None))
                if there == number:
                    del self._server.rows[self._tenant, key]
                    gone += 1
        return gone

    def flush(self, timeout: float) -> None:
        """Do nothing: writes are visible at once."""

    def close(self) -> None:
        """Do nothing: the rows stay with the server."""
