"""Stream processing on Kafka: emitters, processors, tables and views."""

from streamtable.aggregate import Aggregate, Count, Last, Max, Min, Sum
from streamtable.app import Processor, View, Views, kafka_from, stop_on_signals
from streamtable.codec import Avro, Bytes, Confluent, Json, Long, Plain, SingleObject, String
from streamtable.context import Batch, Context, RowChange
from streamtable.emitter import Emitter
from streamtable.errors import UnreadableRow
from streamtable.graph import Changes, Group, Input, Join, Lookup, Loop, OnError, Output, Persist, Visit
from streamtable.kafka import Kafka
from streamtable.once import Once
from streamtable.settings import Settings
from streamtable.tables.position import Guarantee
from streamtable.topics import Stream, Table
from streamtable.types import Ack, BadToken
from streamtable.views.rows import OnUnreadable, RowIterator, Rows
from streamtable.views.view import Answer, Position, Snapshot
from streamtable.views.watch import Change, ChangesMissed, CopyReloaded, TooSlow, Watch

__all__ = [
    "Ack",
    "Aggregate",
    "Answer",
    "Avro",
    "BadToken",
    "Batch",
    "Bytes",
    "Change",
    "Changes",
    "ChangesMissed",
    "Confluent",
    "Context",
    "CopyReloaded",
    "Count",
    "Emitter",
    "Group",
    "Guarantee",
    "Input",
    "Join",
    "Json",
    "Kafka",
    "Last",
    "Long",
    "Lookup",
    "Loop",
    "Max",
    "Min",
    "OnError",
    "OnUnreadable",
    "Once",
    "Output",
    "Persist",
    "Plain",
    "Position",
    "Processor",
    "RowChange",
    "RowIterator",
    "Rows",
    "Settings",
    "SingleObject",
    "Snapshot",
    "Stream",
    "String",
    "Sum",
    "Table",
    "TooSlow",
    "UnreadableRow",
    "View",
    "Views",
    "Visit",
    "Watch",
    "kafka_from",
    "stop_on_signals",
]
