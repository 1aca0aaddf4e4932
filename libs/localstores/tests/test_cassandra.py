"""A real Cassandra, killed and started again."""

from pathlib import Path

import pytest

from localkafka.jars import read_pins
from localstores.cassandra import PINS, ROOTS, CassandraServer

pytestmark = pytest.mark.broker


def test_a_killed_server_comes_back_on_its_port(tmp_path: Path) -> None:
    with CassandraServer(tmp_path) as server:
        port = server.port
        assert server.answers()
        server.kill()
        server.start()
        assert server.port == port
        assert server.answers()


def test_the_pins_hold_every_root() -> None:
    pins = read_pins(PINS.read_text())
    for group, artifact, version in ROOTS:
        assert f"{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}.jar" in pins
