"""Lines on standard output and standard error."""

import sys
from contextlib import suppress


def say(text: str) -> None:
    """Write a line for the person or program that started this one."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    """Write a line to standard error, if that takes it: the exit code must not depend on it."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
