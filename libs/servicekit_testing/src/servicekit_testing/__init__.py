"""Tools for tests of services; production images do not contain them."""

from servicekit_testing.memory_table import (
    MemoryAnswer,
    MemoryChange,
    MemoryPosition,
    MemoryTable,
    MemoryWatch,
)
from servicekit_testing.processes import Process
from servicekit_testing.retries import retrying_client, with_ids

__all__ = [
    "MemoryAnswer",
    "MemoryChange",
    "MemoryPosition",
    "MemoryTable",
    "MemoryWatch",
    "Process",
    "retrying_client",
    "with_ids",
]
