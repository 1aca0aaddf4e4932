"""Waits for the rejection of a write by the store, as distinct from timeouts on a stalled machine."""

import re
from collections.abc import Callable

import pytest

from localkafka.waiting import Deadline
from streamtable.errors import RetryKeys


def refusal(write: Callable[[], object], reason: str) -> RetryKeys:
    """Return the error of a write that fails for this reason, a pattern. Where a request has timed out first, it is tried again."""
    deadline = Deadline(60)
    while True:
        with pytest.raises(RetryKeys) as failed:
            write()
        if re.search(reason, str(failed.value)):
            return failed.value
        assert not deadline.passed(), failed.value
