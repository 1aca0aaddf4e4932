"""The commands of services as processes."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from threading import Thread
from typing import Final

from localkafka.waiting import Deadline
from servicekit_testing.prefork import prefork_of

_LISTENING: Final = re.compile(r"listening on (?:http|grpc)://(\S+)")
_START_SECONDS: Final = 90


class Process:
    """A running command of a service, with none of this process's settings.

    Args:
        module: The module to run.
        arguments: The command and its options.
        environment: The settings of the service.

    Attributes:
        output: The lines written so far.
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
        self._looked_at = 0
        self._reader = Thread(target=self._read, args=(read,))
        self._reader.start()

    def _read(self, output: int) -> None:
        with open(output, encoding="utf-8") as lines:
            for line in lines:
                self.output.append(line)

    def address(self) -> str:
        """Return the address that the command listens on; each further call returns the next one.

        Raises:
            AssertionError: The command has ended, or does not listen in time; the message has its output.
        """
        deadline = Deadline(_START_SECONDS)
        while True:
            ended = not self._reader.is_alive()
            while self._looked_at < len(self.output):
                found = _LISTENING.match(self.output[self._looked_at])
                self._looked_at += 1
                if found is not None:
                    return found[1]
            assert not ended, f"the command ended before it listened: {''.join(self.output)}"
            assert not deadline.passed(), (
                f"the command does not listen after {_START_SECONDS} s: {''.join(self.output)}"
            )
            time.sleep(0.01)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send it the signal and wait. Returns the exit code."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        """Wait up to a minute for it to exit, then kill it. Returns the exit code; raises TimeoutError."""
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.close()
            raise TimeoutError(f"the command has not ended; its output: {''.join(self.output)}") from None
        self._reader.join()
        return code

    def close(self) -> None:
        """Make sure that it has ended."""
        self.process.kill()
        self.ended()
