"""The calls of user code: together, or record by record so that one can be undone."""
