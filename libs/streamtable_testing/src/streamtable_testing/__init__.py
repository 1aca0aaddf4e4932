"""Tests of processors: the Tester, and the virtual Kafka under it. The library itself does not import this."""

from streamtable_testing.tester import DeadLetter, Emitted, Tester

__all__ = ["DeadLetter", "Emitted", "Tester"]
