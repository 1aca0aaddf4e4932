"""The order of a commit, and how much of it fits."""
