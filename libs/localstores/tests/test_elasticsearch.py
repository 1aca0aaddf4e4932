"""The installation of the server; tests of microbatch's stores start, freeze and restart it."""

from localkafka.jars import read_pins
from localstores.elasticsearch import PINS, ROOTS


def test_the_pins_hold_every_root() -> None:
    pins = read_pins(PINS.read_text())
    for group, artifact, version in ROOTS:
        assert f"{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}.jar" in pins
