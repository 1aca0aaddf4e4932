"""Stream processing on Kafka: emitters, processors, tables and views."""

from streamtable.aggregate import Aggregate, Count, Last, Max, Min, Sum
from streamtable.app import Processor, View, kafka_from, stop_on_signals
from streamtable.codec import Avro, Bytes, Confluent, Json, Long, Plain, SingleObject, String
from streamtable.context import Batch, Context
from streamtable.emitter import Emitter
from streamtable.engine.position import Guarantee
from streamtable.graph import Group, Input, OnError, Output, Persist
from streamtable.kafka import Kafka
from streamtable.settings import Settings
from streamtable.topics import Stream, Table
from streamtable.types import Ack
from streamtable.view import Answer, Position
from streamtable.watch import Change, TooSlow, Watch

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
    "Emitter",
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
    "Settings",
    "SingleObject",
    "Stream",
    "String",
    "Sum",
    "Table",
    "TooSlow",
    "View",
    "Watch",
    "kafka_from",
    "stop_on_signals",
]
