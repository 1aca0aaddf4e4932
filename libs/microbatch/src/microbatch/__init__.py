"""Micro-batches over a central store, on streamtable's engine."""

from microbatch.batch import Batch, Send
from microbatch.graph import MicroBatch
from microbatch.limits import Limits
from microbatch.metrics import BatchMetrics
from microbatch.processor import BatchProcessor
from microbatch.record import Record
from microbatch.rows import BatchRows, Rows
from microbatch.testing import InMemoryStore

__all__ = [
    "Batch",
    "BatchMetrics",
    "BatchProcessor",
    "BatchRows",
    "InMemoryStore",
    "Limits",
    "MicroBatch",
    "Record",
    "Rows",
    "Send",
]
