"""Parquet files on a disk or in an object store as the target of a sink. Needs the extra `parquet`."""

from streamtable_sinks.parquet.compaction import Compacted, CompactionLimits, compact
from streamtable_sinks.parquet.reader import committed_files, read_rows
from streamtable_sinks.parquet.target import Parquet

__all__ = ["Compacted", "CompactionLimits", "Parquet", "committed_files", "compact", "read_rows"]
