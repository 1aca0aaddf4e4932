"""Real stores and databases on this machine without containers: for tests and the demo."""
