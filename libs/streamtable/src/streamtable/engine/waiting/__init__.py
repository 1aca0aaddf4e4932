"""Work, records and partitions that a member waits for."""
