"""Real central stores on this machine without containers: for tests and the demo. Servers come as wheels or jars."""
