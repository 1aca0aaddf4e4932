"""The commands of services as processes."""

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from queue import Queue
from threading import Thread

from servicekit_testing.prefork import prefork_of


class Process:
    """A command of a service, running; none of its settings comes from this process.

    Args:
        module: that is run.
        arguments: command and options.
        environment: its settings.

    Attributes:
        output: the lines that it has written so far.
    """

    def __init__(self, module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        settings = re.compile(r"STREAMTABLE_|SERVICEKIT_|OTEL_|[A-Z_]+_GROUP$")
        clean = {name: value for name, value in os.environ.items() if not settings.match(name)}
        read, write = os.pipe()
        try:
            self.process = prefork_of(module).start(arguments, {**clean, **environment}, write)
        finally:
            os.close(write)
        self.output: list[str] = []
        self._lines: Queue[str] = Queue()
        self._reader = Thread(target=self._read, args=(read,))
        self._reader.start()

    def _read(self, output: int) -> None:
        with open(output, encoding="utf-8") as lines:
            for line in lines:
                self.output.append(line)
                self._lines.put(line)

    def address(self) -> str:
        """What it says that it listens on; when called again, the next one."""
        while True:
            found = re.match(r"listening on (http|grpc)://(\S+)", self._lines.get(timeout=90))
            if found is not None:
                return found.group(2)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to stop. Returns the exit code."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        """Wait for its end, a minute at most, then end it. Returns the exit code; raises TimeoutError."""
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.close()
            raise TimeoutError(f"it has not ended; it said: {''.join(self.output)}") from None
        self._reader.join()
        return code

    def close(self) -> None:
        """Make sure that it has ended."""
        self.process.kill()
        self.ended()
