"""The ground that all rooms share: types, ports, settings, clocks, logs."""
