"""Requests to a broker that may still be starting."""

import time
from collections.abc import Callable
from typing import TypeVar

from localkafka.waiting import Deadline
from streamtable.errors import RetryLater

T = TypeVar("T")


def patiently(ask: Callable[[], T], patience: float = 30.0) -> T:
    """Return the result of a request, retried for this many seconds while the broker is not ready."""
    deadline = Deadline(patience)
    while True:
        try:
            return ask()
        except RetryLater:
            if deadline.passed():
                raise
        time.sleep(0.05)
