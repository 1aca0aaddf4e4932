"""The base of all servers: a process that is started, frozen, killed, and started again on its port."""

import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from localkafka.errors import BrokerFailed, SetupError
from localkafka.process import Child, reserve_port
from localkafka.waiting import Deadline


class Server(ABC):
    """A server on 127.0.0.1. As a context manager it is started, and stopped at the end; its data stays.

    Args:
        data_dir: all that it writes is in here.
        port: 0: a free one, kept until `close`, also while the server is down.
        detached: it outlives this process. Otherwise it is killed with it.
    """

    def __init__(self, data_dir: Path, *, port: int = 0, detached: bool = False) -> None:
        self.data_dir = data_dir.resolve()
        self.log_file = self.data_dir / "server.log"
        self._requested_port = port
        self._detached = detached
        self._ports: list[int] = []
        self._held = ExitStack()
        self._child: Child | None = None

    @abstractmethod
    def command(self) -> Sequence[str]:
        """The program and its arguments; its dependencies are fetched here, and its settings are written."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether it is ready for clients. May raise OSError."""

    @property
    def port(self) -> int:
        """The port for clients, which is reserved at the first access."""
        return self.ports(1)[0]

    @property
    def pid(self) -> int:
        assert self._child, "start it first"
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether its process exists, even if it is frozen."""
        return self._child is not None and self._child.returncode is None

    def ports(self, count: int) -> Sequence[int]:
        """The first one is for clients, the others are for what else it listens to."""
        while len(self._ports) < count:
            requested = 0 if self._ports else self._requested_port
            try:
                held = self._held.enter_context(reserve_port(requested))
            except OSError as error:
                raise SetupError(f"port {requested} is taken: name another") from error
            self._ports.append(held.getsockname()[1])
        return self._ports[:count]

    def start(self, timeout: float = 90) -> None:
        """Start it and wait until it answers.

        Raises:
            SetupError: its program cannot be had here, or its port.
            BrokerFailed: it ended, or did not answer in `timeout` seconds of an idle machine; with the end of its log.
        """
        if self.running:
            return
        self.kill()  # one that has ended by itself
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._child = Child(self.command(), self.log_file, detached=self._detached)
        (self.data_dir / "pid").write_text(f"{self._child.pid}\n")
        deadline = Deadline(timeout)
        while not self._ready():
            ended = self._child.returncode
            if ended is not None or deadline.passed():
                self.kill()
                log = self.log_file.read_bytes()[-3000:].decode(errors="replace")
                raise BrokerFailed(
                    f"{self.command()[0]} on port {self.port} does not answer (ended with {ended}):\n{log}"
                )
            time.sleep(0.05)

    def stop(self) -> None:
        """Ask it to stop; kill it if it takes long."""
        if self._child:
            self._child.stop()
            self._child = None

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        if self._child:
            self._child.kill()
            self._child = None

    def pause(self) -> None:
        """Freeze it: its connections stay open, nothing answers."""
        assert self._child, "start it first"
        self._child.pause()

    def resume(self) -> None:
        """Continue the process."""
        assert self._child, "start it first"
        self._child.resume()

    def close(self) -> None:
        """Stop it and give its ports back."""
        self.stop()
        self._held.close()
        self._ports = []

    def wipe(self) -> None:
        """Delete its data; it must be stopped."""
        assert self._child is None, "stop it first"
        shutil.rmtree(self.data_dir, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ready(self) -> bool:
        try:
            return self.answers()
        except OSError:
            return False
