"""For tests, the demo and the benchmark: a real broker without containers, and the tester. Services never import it."""
