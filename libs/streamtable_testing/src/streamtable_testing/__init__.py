"""Tests of processors: the Tester, and the virtual Kafka under it. Nothing of the library imports this."""

from streamtable_testing.tester import DeadLetter, Emitted, Tester

__all__ = ["DeadLetter", "Emitted", "Tester"]
