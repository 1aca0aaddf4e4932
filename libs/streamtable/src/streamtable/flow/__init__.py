"""Streams and tables as programs: operators over streams, tables with retraction, windows; compiled to groups."""

from streamtable.flow.cogrouped import CogroupedSessions, CogroupedStream, CogroupedWindows
from streamtable.flow.flow import Flow
from streamtable.flow.grouped import Grouped, GroupedStream, GroupedTable
from streamtable.flow.plan.describe import Description
from streamtable.flow.stream import KeyedStream
from streamtable.flow.table import KeyedTable
from streamtable.flow.windowed import SessionStream, TimeWindowedStream, WindowedStream, WindowedTable
from streamtable.flow.windows.keys import DayWindowKey, SessionKey, Windowed, WindowedKey
from streamtable.flow.windows.windows import Assigned, Hopping, Session, Sliding, TimeWindow, Tumbling, Window

__all__ = [
    "Assigned",
    "CogroupedSessions",
    "CogroupedStream",
    "CogroupedWindows",
    "DayWindowKey",
    "Description",
    "Flow",
    "Grouped",
    "GroupedStream",
    "GroupedTable",
    "Hopping",
    "KeyedStream",
    "KeyedTable",
    "Session",
    "SessionKey",
    "SessionStream",
    "Sliding",
    "TimeWindow",
    "TimeWindowedStream",
    "Tumbling",
    "Window",
    "Windowed",
    "WindowedKey",
    "WindowedStream",
    "WindowedTable",
]
