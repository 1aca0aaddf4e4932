"""What is submitted to Spark: arguments, sources and sinks. What is computed between them stands in `transforms`."""
