"""JSON checked against types, and comparisons of JSON schemas."""

from exactjson.comparison import UNFILLED, unreadable
from exactjson.rows import columns, shaped
from exactjson.schemas import bare, key_fault, resolved
from exactjson.types import Checked, Unsuitable, checked, fault, finite

__all__ = [
    "UNFILLED",
    "Checked",
    "Unsuitable",
    "bare",
    "checked",
    "columns",
    "fault",
    "finite",
    "key_fault",
    "resolved",
    "shaped",
    "unreadable",
]
