"""Schema registries and their framings for the codecs of `streamtable`."""

from streamtable_codecs.framing import Confluent
from streamtable_codecs.registry import FileRegistry, HttpRegistry

__all__ = ["Confluent", "FileRegistry", "HttpRegistry"]
