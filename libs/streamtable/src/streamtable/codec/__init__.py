"""Codecs: what lies in topics, as values. The registry by URL is in `streamtable.codec.registry`."""

from streamtable.codec.avro import Avro, RecordSchema
from streamtable.codec.framing import Confluent, Framing, Plain, Registry, SingleObject
from streamtable.codec.plain import Bytes, Json, Long, String
from streamtable.codec.schema import AvroSchema

__all__ = [
    "Avro",
    "AvroSchema",
    "Bytes",
    "Confluent",
    "Framing",
    "Json",
    "Long",
    "Plain",
    "RecordSchema",
    "Registry",
    "SingleObject",
    "String",
]
