"""Change data capture: tables of a database as tables here, from the topics of Debezium's connectors."""

from streamtable_capture.capture import Capture
from streamtable_capture.change import DatabaseChange, DatabaseSource, SourceTransaction, event_time
from streamtable_capture.connect_key import ConnectKey, key_schema
from streamtable_capture.debezium import Debezium, Truncated
from streamtable_capture.semantics import (
    BITS,
    DATE,
    GEOMETRY,
    JSON_TEXT,
    MICRO_DURATION,
    MICRO_TIME,
    MICRO_TIMESTAMP,
    NANO_TIME,
    NANO_TIMESTAMP,
    TIME,
    TIMESTAMP,
    VARIABLE_SCALE_DECIMAL,
    Semantic,
    decimal_bytes,
)
from streamtable_capture.views import TransactionViews, WholeTables

__all__ = [
    "BITS", "DATE", "GEOMETRY", "JSON_TEXT", "MICRO_DURATION", "MICRO_TIME", "MICRO_TIMESTAMP", "NANO_TIME",
    "NANO_TIMESTAMP", "TIME", "TIMESTAMP", "VARIABLE_SCALE_DECIMAL", "Capture", "ConnectKey",
    "DatabaseChange", "DatabaseSource", "Debezium", "Semantic", "SourceTransaction", "TransactionViews",
    "Truncated", "WholeTables", "decimal_bytes", "event_time", "key_schema",
]  # fmt: skip
