"""Changes as tables of Arrow, for targets that are files."""
