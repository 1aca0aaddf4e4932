"""The declarations of a group: its inputs, outputs, tables, states and timers, as frozen data."""
