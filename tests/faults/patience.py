"""Questions to a broker that may still be starting."""

import time
from collections.abc import Callable
from typing import TypeVar

from localkafka.waiting import Deadline
from streamtable.errors import RetryLater

T = TypeVar("T")


def patiently(ask: Callable[[], T], patience: float = 30.0) -> T:
    """The answer; asked again for so many seconds while the broker does not know."""
    deadline = Deadline(patience)
    while True:
        try:
            return ask()
        except RetryLater:
            if deadline.passed():
                raise
        time.sleep(0.05)
