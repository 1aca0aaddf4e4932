"""Codecs: values to and from the bytes in topics. Schema registries are in the package `streamtable_codecs`."""

from streamtable.codec.avro import Avro, BoundSchema, avro_branch, avro_branch_of
from streamtable.codec.framing import Framing, Plain, SingleObject
from streamtable.codec.plain import Bytes, Json, Long, String
from streamtable.codec.typed import Typed

__all__ = [
    "Avro",
    "BoundSchema",
    "Bytes",
    "Framing",
    "Json",
    "Long",
    "Plain",
    "SingleObject",
    "String",
    "Typed",
    "avro_branch",
    "avro_branch_of",
]
