"""The recovery of partitions: restored tables, standby replicas, retention."""
