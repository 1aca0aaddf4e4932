"""Schema registries and their framings for the codecs of `streamtable`."""

from streamtable_codecs.access import Basic, Bearer, Tls
from streamtable_codecs.framing import Apicurio, Confluent, Glue
from streamtable_codecs.json_schema import JsonSchema
from streamtable_codecs.protobuf import Protobuf
from streamtable_codecs.registry import FileRegistry, HttpRegistry
from streamtable_codecs.schemas import RecordName, TopicName, TopicRecordName

__all__ = [
    "Apicurio",
    "Basic",
    "Bearer",
    "Confluent",
    "FileRegistry",
    "Glue",
    "HttpRegistry",
    "JsonSchema",
    "Protobuf",
    "RecordName",
    "Tls",
    "TopicName",
    "TopicRecordName",
]
