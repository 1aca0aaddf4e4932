"""Looks at the cluster: a bounded number at a time, each with bounded reads."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore
from typing import Final

from streamtable import Kafka
from streamtable.errors import RetryLater
from streamtable_admin.cluster import Cluster, connect
from streamtable_admin.reading import ReadLimits

LIMITS: Final = ReadLimits(stall=1.0, give_up=5.0, total=5.0, bytes_max=32 << 20)
CLIENT_NAME: Final = "streamtable-console"
LOOKS_AT_ONCE: Final = 4
_WAIT_SECONDS: Final = 2.0


class Clusters:
    """Opens the cluster for one look at a time. Any thread; four looks at once.

    Args:
        kafka: The cluster.
    """

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._looks = BoundedSemaphore(LOOKS_AT_ONCE)

    @contextmanager
    def connected(self) -> Iterator[Cluster]:
        """Open the cluster for one look. Raises `RetryLater` when there are too many looks."""
        if not self._looks.acquire(timeout=_WAIT_SECONDS):
            raise RetryLater("too many requests look at topics; ask again")
        try:
            with connect(self._kafka, client_name=CLIENT_NAME) as cluster:
                yield cluster
        finally:
            self._looks.release()
