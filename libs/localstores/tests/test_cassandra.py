"""The installation of the server; tests of microbatch's stores start, freeze and restart it."""

from pathlib import Path

import pytest

from localkafka.jars import read_pins
from localkafka.java import BRIEF
from localstores.cassandra import PINS, ROOTS, CassandraServer


def test_the_pins_hold_every_root() -> None:
    pins = read_pins(PINS.read_text())
    for group, artifact, version in ROOTS:
        assert f"{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}.jar" in pins


@pytest.mark.broker  # its jars must be there
@pytest.mark.parametrize("brief", [True, False])
def test_only_a_brief_server_does_without_the_compiler_that_pays_later(
    tmp_path: Path, *, brief: bool
) -> None:
    server = CassandraServer(tmp_path, brief=brief)
    try:
        assert (BRIEF in server.command()) == brief
    finally:
        server.close()
