"""The way of a record from a batch to its handler."""
