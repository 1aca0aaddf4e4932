"""Access to the cluster: a limited number of requests at a time, each with limited reads."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore
from typing import Final

from streamtable import Kafka
from streamtable.errors import RetryLater
from streamtable_admin.cluster import Cluster, connect
from streamtable_admin.reading import ReadLimits

LIMITS: Final = ReadLimits(stall=1.0, give_up=5.0, total=5.0, bytes_max=4 << 20)
SMALL_QUEUES: Final = {
    "fetch.max.bytes": str(1 << 20),
    "max.partition.fetch.bytes": str(1 << 20),
    "queued.max.messages.kbytes": "1024",
}
"""Options of librdkafka. The console has a consumer for each table and each request: with the library's queues of 8 MB each,
they would take more memory than the rest of the process. A larger record is fetched nevertheless."""
CLIENT_NAME: Final = "streamtable-console"
LOOKS_AT_ONCE: Final = 3
_WAIT_SECONDS: Final = 2.0


class Clusters:
    """Opens the cluster for one request at a time. Any thread; three requests at once.

    Args:
        kafka: The cluster.
    """

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._looks = BoundedSemaphore(LOOKS_AT_ONCE)

    @contextmanager
    def look(self) -> Iterator[None]:
        """Admit one request for records. Raises `RetryLater` if there are too many."""
        if not self._looks.acquire(timeout=_WAIT_SECONDS):
            raise RetryLater("too many requests read topics; retry the request")
        try:
            yield
        finally:
            self._looks.release()

    @contextmanager
    def connected(self) -> Iterator[Cluster]:
        """Open the cluster for one request. Raises `RetryLater` if there are too many."""
        with self.look(), connect(self._kafka, client_name=CLIENT_NAME) as cluster:
            yield cluster
