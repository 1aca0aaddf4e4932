"""How far a job is: a bar on a terminal, else a line of JSON for each stage."""

import json
from collections.abc import Callable, Sequence
from typing import TextIO

_CELLS = 24


class Progress:
    """Stages of a job, in their order.

    Args:
        stages: what each does, in a few words.
        out: where it is shown, standard error mostly.
        clock: seconds, rising.
    """

    def __init__(self, stages: Sequence[str], out: TextIO, clock: Callable[[], float]) -> None:
        self._stages = list(stages)
        self._out = out
        self._clock = clock
        self._terminal = out.isatty()
        self._began = clock()
        self._at = 0

    def stage(self, name: str, **facts: object) -> None:
        """The stage of this name begins; those before it are done.

        Args:
            name: one of the stages.
            facts: that are known now, by name.
        """
        self._at = self._stages.index(name)
        self._show(name, "running", facts)

    def done(self, **facts: object) -> None:
        """All of it is done."""
        self._at = len(self._stages)
        self._show("done", "done", facts)
        if self._terminal:
            self._out.write("\n")
            self._out.flush()

    def _show(self, name: str, state: str, facts: dict[str, object]) -> None:
        seconds = self._clock() - self._began
        if self._terminal:
            full = _CELLS * self._at // len(self._stages)
            bar = "#" * full + "." * (_CELLS - full)
            said = "".join(f", {key.replace('_', ' ')} {value}" for key, value in facts.items())
            self._out.write(f"\r\x1b[K[{bar}] {self._at}/{len(self._stages)} {name}{said} ({seconds:.0f} s)")
        else:
            line = {
                "state": state,
                "stage": name,
                "of": len(self._stages),
                "done": self._at,
                "seconds": round(seconds, 1),
            }
            self._out.write(json.dumps(line | facts) + "\n")
        self._out.flush()
