"""The processor of one group, for packages that bring their own log, stores or tasks.

Programs run their groups with `App` and `Processor`. Micro-batches bring tasks of their own, and the tester a log in memory.
"""

from streamtable.engine.processor import GroupProcessor
from streamtable.engine.settings import ProcessorSettings
from streamtable.engine.silence import observe_seconds

__all__ = ["GroupProcessor", "ProcessorSettings", "observe_seconds"]
