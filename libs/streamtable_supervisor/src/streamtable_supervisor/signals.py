"""The signals that ask a process to stop."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_HANGUP: int | None = getattr(signal, "SIGHUP", None)  # Windows has none


@contextmanager
def stop_signals_to(asked: Callable[[int], object]) -> Iterator[None]:
    """Call `asked` with the first SIGTERM, SIGINT or SIGHUP in the block; a second SIGTERM or SIGINT ends the process at once.

    A closed terminal may send more than one SIGHUP, so the second is ignored. Under `nohup` all are.
    """

    def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a handler's signature
        # The default action needs no Python code to run, so it also ends a process that waits inside of a C library.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if _HANGUP is not None:
            signal.signal(_HANGUP, signal.SIG_IGN)
        asked(number)

    numbers: list[int] = [signal.SIGTERM, signal.SIGINT]
    if _HANGUP is not None and signal.getsignal(_HANGUP) is not signal.SIG_IGN:
        numbers.append(_HANGUP)
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
