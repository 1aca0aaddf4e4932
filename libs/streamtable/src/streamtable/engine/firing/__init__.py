"""The calls for rows and timers that are due."""
