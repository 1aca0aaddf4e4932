"""The named tables of a group beside its own."""
