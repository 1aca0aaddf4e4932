"""Log lines are kept for the test instead of printed."""

from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[MutableMapping[str, Any]]]:
    """The log lines, as they come."""
    with capture_logs() as lines:
        yield lines
