"""Log lines of the engine are kept for the test instead of printed: a handler's traceback is slow to draw."""

from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[MutableMapping[str, Any]]]:
    """The lines of the log, as they are written."""
    with capture_logs() as lines:
        yield lines
