"""For the tests of all rooms."""

pytest_plugins = ["localkafka.fixtures"]
