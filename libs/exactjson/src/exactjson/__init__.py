"""JSON checked against types, and comparisons of JSON schemas."""

from exactjson.comparison import unreadable
from exactjson.schemas import key_fault
from exactjson.types import Checked, Unsuitable, checked, fault

__all__ = ["Checked", "Unsuitable", "checked", "fault", "key_fault", "unreadable"]
