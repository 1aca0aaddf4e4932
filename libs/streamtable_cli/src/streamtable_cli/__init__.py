"""The command `streamtable`."""
