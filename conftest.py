"""For the tests of all rooms."""

pytest_plugins = ["streamtable.testing.fixtures"]
