"""Central stores for micro-batches: Redis, Elasticsearch, Cassandra, and one in memory."""
