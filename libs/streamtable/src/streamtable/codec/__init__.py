"""Codecs: values to and from the bytes in topics. The schema registry by URL is in `streamtable.codec.registry`."""

from streamtable.codec.avro import Avro, BoundSchema, avro_branch, avro_branch_of
from streamtable.codec.framing import Confluent, Framing, Plain, Registry, SingleObject
from streamtable.codec.plain import Bytes, Json, Long, String

__all__ = [
    "Avro",
    "BoundSchema",
    "Bytes",
    "Confluent",
    "Framing",
    "Json",
    "Long",
    "Plain",
    "Registry",
    "SingleObject",
    "String",
    "avro_branch",
    "avro_branch_of",
]
