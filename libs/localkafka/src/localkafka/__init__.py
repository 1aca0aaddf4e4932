"""A real Kafka on this machine without containers, from pinned jars: for tests, the demo and the benchmark."""
