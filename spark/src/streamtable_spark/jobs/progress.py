"""The progress of a job: a bar on a terminal, else a line of JSON for each stage; other reporters read `standing`."""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TextIO

from streamtable_spark.jobs.positions import Spans
from streamtable_spark.jobs.report import Difference

_CELLS: Final = 24
_RECORDS: Final = ("records", "events")


@dataclass(frozen=True)
class Standing:
    """The progress and the results of a job so far.

    Attributes:
        stage: The current stage; empty before the first one.
        done: The number of finished stages, of `stages`.
        part: The share of the current stage that is done: 0 to 1.
        inputs: The offset ranges that the job reads from Kafka.
        counts: The facts that are whole numbers, by name.
        differences: The number of differences that an audit found; None if the job is no audit or has not compared yet.
        keys: The first keys that differ.
        summary: The result in one sentence.
    """

    stage: str = ""
    done: int = 0
    stages: int = 0
    part: float = 0.0
    inputs: Spans = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    differences: int | None = None
    keys: Sequence[Difference] = ()
    summary: str = ""

    @property
    def records(self) -> int:
        """The number of records read so far."""
        return next((self.counts[name] for name in _RECORDS if name in self.counts), 0)

    @property
    def share(self) -> float:
        """The share of the whole job that is done: 0 to 1; all stages have the same weight."""
        return min(1.0, (self.done + self.part) / self.stages) if self.stages else 0.0


class Progress:
    """The progress of a job through its stages.

    Args:
        stages: The stages in order, each described in a few words.
        out: The stream to show progress on, usually standard error.
        clock: A monotonic clock in seconds.
    """

    def __init__(self, stages: Sequence[str], out: TextIO, clock: Callable[[], float]) -> None:
        self._stages = list(stages)
        self._out = out
        self._clock = clock
        self._terminal = out.isatty()
        self._began = clock()
        self._standing = Standing(stages=len(self._stages))
        self._lock = threading.Lock()  # Spark calls a batch's function from a thread of its own

    @property
    def standing(self) -> Standing:
        """The current progress: a new object after each change. Can be read from any thread."""
        return self._standing

    def stage(self, name: str, *, part: float = 0.0, **facts: object) -> None:
        """Report that this stage has begun or advanced; the stages before it are done.

        Args:
            name: One of the stages.
            part: The share of it that is done: 0 to 1.
            facts: The facts that are known now, by name.
        """
        with self._lock:
            self._change(facts, stage=name, done=self._stages.index(name), part=min(max(part, 0.0), 1.0))
            self._show(name, "running", facts)

    def reads(self, inputs: Spans) -> None:
        """Report the offset ranges that the job reads from Kafka."""
        with self._lock:
            self._change({}, inputs=inputs)

    def differs(self, differences: int, keys: Sequence[Difference]) -> None:
        """Report the number of differences that an audit found, and the first keys that differ."""
        with self._lock:
            self._change({}, differences=differences, keys=keys)

    def done(self, *, summary: str = "", **facts: object) -> None:
        """Report that the job is done.

        Args:
            summary: The result in one sentence.
            facts: The facts that are known now, by name.
        """
        with self._lock:
            self._change(facts, stage="", done=len(self._stages), part=0.0, summary=summary)
            self._show("done", "done", facts)
            if self._terminal:
                self._out.write("\n")
                self._out.flush()

    def _change(self, facts: Mapping[str, object], **changes: Any) -> None:
        counts = {name: value for name, value in facts.items() if type(value) is int}
        self._standing = replace(self._standing, counts={**self._standing.counts, **counts}, **changes)

    def _show(self, name: str, state: str, facts: dict[str, object]) -> None:
        seconds = self._clock() - self._began
        standing = self._standing
        if self._terminal:
            full = int(_CELLS * standing.share)
            bar = "#" * full + "." * (_CELLS - full)
            said = "".join(f", {key.replace('_', ' ')} {value}" for key, value in facts.items())
            self._out.write(
                f"\r\x1b[K[{bar}] {standing.done}/{standing.stages} {name}{said} ({seconds:.0f} s)"
            )
        else:
            line = {"state": state, "stage": name, "of": standing.stages, "done": standing.done}
            self._out.write(json.dumps({**line, "seconds": round(seconds, 1), **facts}) + "\n")
        self._out.flush()
