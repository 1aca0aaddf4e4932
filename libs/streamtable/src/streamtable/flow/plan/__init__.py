"""The nodes of a flow, and their compilation to groups."""
