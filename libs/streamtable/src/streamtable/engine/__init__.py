"""The engine: record batches pass through tasks into commits. docs/explanation/engine.md has its rules."""
