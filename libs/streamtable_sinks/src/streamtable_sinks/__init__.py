"""Sinks: tables and streams of Kafka, written to databases and files, exactly once where the target can."""

from streamtable_sinks.memory import MemoryTarget
from streamtable_sinks.sink import Sink
from streamtable_sinks.target import Change, SinkPartition, SinkSource, SinkTarget, Taken

__all__ = ["Change", "MemoryTarget", "Sink", "SinkPartition", "SinkSource", "SinkTarget", "Taken"]
