"""Lines on standard output."""

import sys


def say(text: str) -> None:
    """Write a line for the person or program that started this one."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
