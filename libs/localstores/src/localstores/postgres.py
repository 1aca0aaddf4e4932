"""PostgreSQL: the machine's own programs. There is no wheel of it."""

import os
import pwd
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from localkafka.errors import SetupError
from localkafka.waiting import Deadline
from localstores.server import Server

_USER = "postgres"
_DEBIAN = Path("/usr/lib/postgresql")  # its packages put no server into the PATH
_SSL_REQUEST = struct.pack("!ii", 8, 80877103)
_CANNOT_CONNECT_NOW = b"57P03"
_STARTUP = b"user\0postgres\0database\0postgres\0\0"
LOGICAL: Mapping[str, str] = {"wal_level": "logical", "max_replication_slots": "8", "max_wal_senders": "8"}
"""The options of a server whose changes are captured (`pgoutput`)."""
# A crash of the machine is not what tests are about; a crash of the server loses nothing without fsync.
_BRIEF = {"fsync": "off", "full_page_writes": "off", "max_wal_size": "256MB"}


class PostgresServer(Server):
    """A PostgreSQL with the superuser `postgres` and the database `postgres`, both without a password.

    The server refuses to run as root. A process of root runs it as the user `postgres`, who then owns `data_dir/data`.

    Args:
        data_dir: see `Server`.
        options: Settings by name, such as `{"wal_level": "logical"}`, which override what `brief` sets.
        brief: Whether it need not survive a crash of the machine, as in tests.
        port: see `Server`.
        detached: see `Server`.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        options: Mapping[str, str] | None = None,
        brief: bool = True,
        port: int = 0,
        detached: bool = False,
    ) -> None:
        super().__init__(data_dir, port=port, detached=detached)
        self._options = {**(_BRIEF if brief else {}), **(options or {})}

    @property
    def url(self) -> str:
        """The URL for clients, as the superuser."""
        return self.url_at(self.port)

    def url_of(self, database: str) -> str:
        """The URL of another database for clients."""
        return f"{self.url.removesuffix('/postgres')}/{database}"

    @staticmethod
    def url_at(port: int) -> str:
        """The URL for clients of a proxy that listens on this port."""
        return f"postgresql://{_USER}@127.0.0.1:{port}/postgres"

    def command(self) -> Sequence[str]:
        data = self._made()
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            **self._options,
        }
        chosen = [text for name, value in settings.items() for text in ("-c", f"{name}={value}")]
        return (*_as_user(), str(find_program("postgres")), "-D", str(data), *chosen)

    def answers(self) -> bool:
        """Whether it accepts sessions: while it starts or recovers, it answers with an error."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
            body = struct.pack("!i", 3 << 16) + _STARTUP
            connection.sendall(struct.pack("!i", len(body) + 4) + body)
            answer = connection.recv(1000)
        return bool(answer) and _CANNOT_CONNECT_NOW not in answer

    def stop(self) -> None:
        """Stop it without waiting for its clients to disconnect (`pg_ctl stop -m fast`); kill it if it takes long."""
        if self.running:
            self.resume()
            os.kill(self.pid, signal.SIGINT)
        super().stop()

    def stop_immediately(self) -> None:
        """Abort it and all its sessions (`pg_ctl stop -m immediate`): the next start recovers from its log."""
        if self.running:
            os.kill(self.pid, signal.SIGQUIT)
        super().stop()

    def kill(self) -> None:
        """Kill the server and its sessions with SIGKILL: a session that outlives the server keeps the next one from starting."""
        sessions = self._sessions()
        super().kill()
        self._signal(sessions, signal.SIGKILL)
        deadline = Deadline(30)
        while any(Path(f"/proc/{pid}").exists() for pid in sessions) and not deadline.passed():
            time.sleep(0.01)

    def pause(self) -> None:
        super().pause()
        self._signal(self._sessions(), signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(self._sessions(), signal.SIGCONT)
        super().resume()

    def _sessions(self) -> list[int]:
        """The processes that the server has started, for sessions and for itself."""
        if not self.running:
            return []
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    @staticmethod
    def _signal(pids: Sequence[int], number: int) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _made(self) -> Path:
        """Make the database cluster at the first start."""
        data = self.data_dir / "data"
        if (data / "PG_VERSION").exists():
            return data
        initdb = find_program("initdb")
        data.mkdir(exist_ok=True)
        if os.getuid() == 0:
            user = pwd.getpwnam(_USER)
            os.chown(data, user.pw_uid, user.pw_gid)
        made = subprocess.run(  # noqa: S603 - the machine's own program
            [
                *_as_user(),
                str(initdb),
                "-D",
                str(data),
                "-U",
                _USER,
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--locale=C.UTF-8",
                "--no-sync",
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
        )
        if made.returncode:
            shutil.rmtree(data, ignore_errors=True)
            raise SetupError(f"initdb made no database in {data}:\n{made.stderr[-3000:]}")
        return data


def find_program(name: str) -> Path:
    """Return a program of PostgreSQL's server, such as `initdb`: from the PATH, else the newest in Debian's folder.

    Raises:
        SetupError: There is none.
    """
    if own := shutil.which(name):
        return Path(own)
    found = sorted(_DEBIAN.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    if not found:
        raise SetupError(f"there is no {name} here: install PostgreSQL's server (apt-get install postgresql)")
    return found[-1]


def _as_user() -> Sequence[str]:
    """The command before a command that runs as the user `postgres`, if this process is root's.

    It keeps the right to pass through folders that only root may enter, such as temporary folders of tests.
    """
    if os.getuid() != 0:
        return ()
    setpriv = shutil.which("setpriv")
    try:
        user = pwd.getpwnam(_USER)
    except KeyError as error:
        raise SetupError(f"PostgreSQL does not run as root, and there is no user {_USER!r} here") from error
    if setpriv is None:
        raise SetupError("PostgreSQL does not run as root: install setpriv (util-linux)")
    right = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")
    return (setpriv, f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", *right, "--")
