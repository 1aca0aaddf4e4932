"""Windows as pure functions, and the keys of their rows."""
