"""Metrics of a processor, and the detection of a stalled one."""
