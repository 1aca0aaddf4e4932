"""The inner loops of streamtable in C, over the librdkafka that the installed Kafka client has loaded.

`streamtable` uses this package where it is installed and can be loaded, see its setting `STREAMTABLE_NATIVE`. There is nothing
else to call: records, offsets, errors and produced bytes are the same with and without it.
"""

from streamtable_native.native import Native, NativeUnavailable, load
from streamtable_native.records import NativeBatch, NativeRecords

__all__ = ["Native", "NativeBatch", "NativeRecords", "NativeUnavailable", "load"]
