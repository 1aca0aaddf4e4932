"""A PostgreSQL with logical decoding, from the machine's own package. About 40 MB resident, and 1 s until it answers."""

import os
import pwd
import shutil
import signal
import socket
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from localkafka.errors import SetupError
from localstores.server import Server

USER = "postgres"
_DEBIAN = Path("/usr/lib/postgresql")
_PROTOCOL = 3 << 16
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_replication_slots": "8",
    "max_wal_senders": "8",
    "shared_buffers": "16MB",
}


class PostgresServer(Server):
    """A PostgreSQL with the superuser `postgres`, without passwords, that replicates logically (`pgoutput`).

    Its data survives `kill`, which ends all of its processes at once, as a power cut does to a machine.

    Args:
        data_dir: See `Server`. PostgreSQL refuses to run as root: started by root it runs as the user `postgres`, who must be
            able to enter the folder's parents.
        settings: Settings that take precedence over these: `wal_level=logical`, and sizes for a test.
        port: See `Server`.
        detached: See `Server`.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        settings: Mapping[str, str] | None = None,
        port: int = 0,
        detached: bool = False,
    ) -> None:
        super().__init__(data_dir, port=port, detached=detached)
        self._settings = dict(settings or {})

    def dsn(self, database: str = "postgres") -> str:
        """The address for clients, such as psycopg."""
        return f"host=127.0.0.1 port={self.port} dbname={database} user={USER}"

    def command(self) -> Sequence[str]:
        programs = find_programs()
        cluster = self.data_dir / "cluster"
        if not (cluster / "PG_VERSION").exists():
            self._initialize(programs / "initdb", cluster)
        settings = {**_SETTINGS, "port": str(self.port), **self._settings}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return (*_as_postgres(), str(programs / "postgres"), "-D", str(cluster), *options)

    def answers(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
            body = struct.pack(">i", _PROTOCOL) + f"user\0{USER}\0database\0postgres\0\0".encode()
            connection.sendall(struct.pack(">i", len(body) + 4) + body)
            return connection.recv(1) == b"R"  # "authentication ok"; an error while it starts or recovers

    def stop(self) -> None:
        """Stop it at once, without waiting for clients to leave."""
        if self._child:
            os.kill(self.pid, signal.SIGINT)
        super().stop()

    def kill(self) -> None:
        """Kill all of its processes with SIGKILL: those that are left would keep a new one from starting."""
        if self._child:
            children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
            pids = children.read_text().split() if children.exists() else []
            super().kill()
            for pid in map(int, pids):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue

    def _initialize(self, initdb: Path, cluster: Path) -> None:
        cluster.mkdir(0o700, exist_ok=True)
        if as_other := _as_postgres():
            shutil.chown(cluster, USER, USER)
        command = [
            *as_other,
            str(initdb),
            "-D",
            str(cluster),
            "-U",
            USER,
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-sync",
        ]
        done = subprocess.run(  # noqa: S603 - the machine's own program
            command, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SetupError(
                f"initdb failed ({done.returncode}); as root it runs as the user {USER!r}, who must be able to enter "
                f"the parents of {cluster}:\n{(done.stdout + done.stderr)[-2000:]}"
            )


def find_programs() -> Path:
    """Return the folder of PostgreSQL's programs, the newest of Debian's if there is none on the path.

    Raises:
        SetupError: PostgreSQL is not installed, or was started by root without a user `postgres`.
    """
    found = shutil.which("initdb")
    candidates = sorted(_DEBIAN.glob("*/bin/initdb"), key=lambda path: int(path.parents[1].name))
    if candidates:
        return candidates[-1].parent
    if found:
        return Path(found).resolve().parent
    raise SetupError(
        "PostgreSQL is not installed: 'apt-get install postgresql' (tests that need it are skipped)"
    )


def _as_postgres() -> tuple[str, ...]:
    """Return what runs a program as the user `postgres`, when this process is root's."""
    if os.geteuid() != 0:
        return ()
    try:
        pwd.getpwnam(USER)
    except KeyError as error:
        raise SetupError(f"PostgreSQL refuses to run as root, and there is no user {USER!r}") from error
    return ("/usr/bin/setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups", "--")
