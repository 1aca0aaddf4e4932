"""Tables of Apache Iceberg as the target of a sink. Needs the extra `iceberg`."""

from streamtable_sinks.iceberg.target import Iceberg

__all__ = ["Iceberg"]
