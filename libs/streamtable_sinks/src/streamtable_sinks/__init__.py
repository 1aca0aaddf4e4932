"""Sinks: tables and streams of Kafka, written to databases and files, exactly once where the target can."""

from streamtable_sinks.memory import MemoryTarget
from streamtable_sinks.sink import Sink
from streamtable_sinks.target import (
    BatchTooSlow,
    SinkChange,
    SinkPartition,
    SinkSource,
    SinkTarget,
    TakenPartition,
)

__all__ = [
    "BatchTooSlow",
    "MemoryTarget",
    "Sink",
    "SinkChange",
    "SinkPartition",
    "SinkSource",
    "SinkTarget",
    "TakenPartition",
]
