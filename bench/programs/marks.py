"""The marks of a measured program for its parent: lines on standard output."""

import json
import os
import time
from collections.abc import Mapping

RESULT = "result"


def mark(what: str) -> None:
    """Print a mark with the time and the CPU seconds of the whole process so far."""
    os.write(1, f"{what} {time.time():.6f} {time.process_time():.6f}\n".encode())


def tell(result: Mapping[str, object]) -> None:
    """Print the result of the program."""
    os.write(1, f"{RESULT} {json.dumps(result)}\n".encode())
