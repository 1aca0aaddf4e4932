"""Output records between their handler and the commit."""
