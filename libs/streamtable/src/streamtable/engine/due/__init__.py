"""The index of rows by the time they are due."""
