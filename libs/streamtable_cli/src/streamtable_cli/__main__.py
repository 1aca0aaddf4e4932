"""`streamtable`, and `python -m streamtable_cli`."""

import io
import os
import signal
import sys
import threading
import time

INTERRUPTED = 130
GRACE_S = 1.0


def main() -> None:
    """Run the command. Its modules are imported here, so that Ctrl-C prints no traceback even during the imports."""
    _stop_soon()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(
            stream, io.TextIOWrapper
        ):  # a Latin-1 terminal shows \u4e2d, and does not end the command
            stream.reconfigure(errors="backslashreplace")
    try:
        from streamtable_cli.main import app  # noqa: PLC0415 - see above

        app(prog_name="streamtable")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        _flush()


def _stop_soon() -> None:
    """End the process within a second of Ctrl-C.

    Python runs signal handlers only when the main thread returns from the Kafka client, which may wait for a broker.
    The wake-up byte that is read here is written at once.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def watch() -> None:
        while os.read(reading, 1) != bytes([signal.SIGINT]):
            pass
        time.sleep(GRACE_S)
        os._exit(INTERRUPTED)

    threading.Thread(target=watch, name="ctrl-c", daemon=True).start()


def _flush() -> None:
    """Flush while a closed pipe can be handled; Python's own flush at exit would print an error."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = None
        sys.exit(1)


if __name__ == "__main__":
    main()
