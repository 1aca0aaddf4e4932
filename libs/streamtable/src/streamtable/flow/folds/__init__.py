"""The stateful steps: records folded into rows."""
