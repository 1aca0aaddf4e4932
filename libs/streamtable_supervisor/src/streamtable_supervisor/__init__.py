"""Several processes of one program, run as one. The names are in its modules: what needs one does not import the others."""
