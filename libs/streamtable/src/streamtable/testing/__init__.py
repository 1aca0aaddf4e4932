"""For tests of processors: what a table must hold after faults."""
