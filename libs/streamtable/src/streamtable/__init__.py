"""Stream processing on Kafka: emitters, processors, tables and views."""

from streamtable.aggregate import Aggregate, Count, Last, Max, Min, Sum
from streamtable.app import Processor, View, stop_on_signals
from streamtable.codec import Avro, Bytes, Confluent, Json, Long, Plain, SingleObject, String
from streamtable.context import Batch, Context
from streamtable.engine.position import Guarantee
from streamtable.graph import Group, Input, OnError, Output, Persist
from streamtable.kafka import Kafka
from streamtable.topics import Stream, Table
from streamtable.types import Ack
from streamtable.view import Answer, Position
from streamtable.watch import Change, Watch

__all__ = [
    "Ack",
    "Aggregate",
    "Answer",
    "Avro",
    "Batch",
    "Bytes",
    "Change",
    "Confluent",
    "Context",
    "Count",
    "Group",
    "Guarantee",
    "Input",
    "Json",
    "Kafka",
    "Last",
    "Long",
    "Max",
    "Min",
    "OnError",
    "Output",
    "Persist",
    "Plain",
    "Position",
    "Processor",
    "SingleObject",
    "Stream",
    "String",
    "Sum",
    "Table",
    "View",
    "Watch",
    "stop_on_signals",
]
