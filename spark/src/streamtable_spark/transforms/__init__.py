"""Data frames to data frames: no arguments, no files, no Kafka."""
