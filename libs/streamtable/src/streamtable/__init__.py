"""Stream processing on Kafka: emitters, processors, tables and views."""

import streamtable.base.load_structlog  # noqa: F401 - before all that import structlog

# isort: split
from streamtable.app import App, Processor, ProcessorOptions
from streamtable.base.decoding import decode_each
from streamtable.base.no_key import NoKey
from streamtable.base.ports import Codec, Decoded, Store, Stores
from streamtable.base.settings import Settings
from streamtable.base.topics import Stream, Table
from streamtable.base.types import Ack, BadToken, Committed, Guarantee, NextOffset, RecordBatch
from streamtable.codec import (
    Avro,
    Bytes,
    Json,
    Long,
    Plain,
    SingleObject,
    String,
    Typed,
    avro_branch,
    avro_branch_of,
)
from streamtable.emitter import Emitter
from streamtable.engine.local_queries import Freshness, LocalAnswer
from streamtable.errors import ChangesMissed, PartitionNotAssigned, UnreadableRow
from streamtable.graph.aggregate import Aggregate, Collect, Count, Last, Max, Mean, Min, Sum, TopK
from streamtable.graph.custom_task import CommitDue, CustomTask, CustomTasks, Prepared, TaskServices, Written
from streamtable.graph.due import Due
from streamtable.graph.group import (
    Changes,
    EventTime,
    Group,
    Input,
    Join,
    Lookup,
    Loop,
    OnError,
    Output,
    Persist,
    Topology,
    Visit,
)
from streamtable.graph.once import Once
from streamtable.graph.row_change import RowChange
from streamtable.graph.state import State
from streamtable.graph.timer import Timer
from streamtable.handlers.context import BatchContext, Context
from streamtable.handlers.due_rows import DueRows
from streamtable.handlers.state_table import StateTable
from streamtable.handlers.timers import Timers
from streamtable.kafka import Kafka
from streamtable.views.rows import OnUnreadable, RowIterator, RowList
from streamtable.views.tail import Following, Tail, TailRecord
from streamtable.views.view import Answer, Position, Snapshot, View
from streamtable.views.watch import Change, CopyReloaded, TooSlow, Watch

__all__ = [
    "Ack",
    "Aggregate",
    "Answer",
    "App",
    "Avro",
    "BadToken",
    "BatchContext",
    "Bytes",
    "Change",
    "Changes",
    "ChangesMissed",
    "Codec",
    "Collect",
    "CommitDue",
    "Committed",
    "Context",
    "CopyReloaded",
    "Count",
    "CustomTask",
    "CustomTasks",
    "Decoded",
    "Due",
    "DueRows",
    "Emitter",
    "EventTime",
    "Following",
    "Freshness",
    "Group",
    "Guarantee",
    "Input",
    "Join",
    "Json",
    "Kafka",
    "Last",
    "LocalAnswer",
    "Long",
    "Lookup",
    "Loop",
    "Max",
    "Mean",
    "Min",
    "NextOffset",
    "NoKey",
    "OnError",
    "OnUnreadable",
    "Once",
    "Output",
    "PartitionNotAssigned",
    "Persist",
    "Plain",
    "Position",
    "Prepared",
    "Processor",
    "ProcessorOptions",
    "RecordBatch",
    "RowChange",
    "RowIterator",
    "RowList",
    "Settings",
    "SingleObject",
    "Snapshot",
    "State",
    "StateTable",
    "Store",
    "Stores",
    "Stream",
    "String",
    "Sum",
    "Table",
    "Tail",
    "TailRecord",
    "TaskServices",
    "Timer",
    "Timers",
    "TooSlow",
    "TopK",
    "Topology",
    "Typed",
    "UnreadableRow",
    "View",
    "Visit",
    "Watch",
    "Written",
    "avro_branch",
    "avro_branch_of",
    "decode_each",
]
