"""The programs to submit to Spark: arguments, sources and sinks. `transforms` has the computations between them."""
