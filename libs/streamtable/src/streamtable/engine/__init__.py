"""The engine: record batches pass through tasks into commits. docs/explanation/engine.md has its rules.

Programs run their groups with `App` and `Processor`. Packages that bring their own log, stores or tasks, as micro-batches and
the tester do, use the names of this module.
"""

from streamtable.engine.processor import GroupProcessor
from streamtable.engine.settings import ProcessorSettings
from streamtable.engine.time.silence import observe_seconds

__all__ = ["GroupProcessor", "ProcessorSettings", "observe_seconds"]
