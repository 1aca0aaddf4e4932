"""`streamtable`, and `python -m streamtable_cli`."""

import os
import signal
import sys
import threading
import time

INTERRUPTED = 130
GRACE_S = 1.0


def main() -> None:
    """Run the command. Its modules are imported here, so that Ctrl-C is quiet from the beginning."""
    _stop_soon()
    try:
        from streamtable_cli.main import app  # noqa: PLC0415 - see above

        app(prog_name="streamtable")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        _flush()


def _stop_soon() -> None:
    """End the process a second after Ctrl-C at the latest.

    Python handles a signal when the main thread is back from the Kafka client, which may wait for a broker. The byte
    that arrives here is written at once.
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
    """Flush while a closed pipe can be handled; the flush of Python at its exit would print an error."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = None
        sys.exit(1)


if __name__ == "__main__":
    main()
