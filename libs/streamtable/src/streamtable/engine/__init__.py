"""The engine: batches through tasks into commits. See docs/explanation/engine.md for the rules it keeps."""
