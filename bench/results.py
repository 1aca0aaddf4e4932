"""Results on disk: the lines of every run, the published figures, and the baseline ratios of quick runs."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bench.figures import Figure
from bench.machine import ROOT

Line = dict[str, Any]
LINES = ROOT / "build" / "bench.jsonl"
FIGURES = Path(__file__).with_name("figures.json")
BASELINE = Path(__file__).with_name("baseline.json")


class Recorder:
    """Appends figures to the file of lines, each with the common members of its run.

    Args:
        file: The file, created if it is missing.
        kind: The kind of the run: full, quick, peers, or rows (some only).
        time: The start of the run in UTC, which identifies it.
        facts: The facts about the machine.
    """

    def __init__(self, file: Path, kind: str, time: str, facts: Mapping[str, Any]) -> None:
        self._file = file
        self._common = {"run": kind, "time": time, **facts}

    def add(self, figure: Figure) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a") as lines:
            lines.write(json.dumps({**figure.line(), **self._common}) + "\n")


def last_runs(file: Path, kind: str, count: int) -> list[list[Line]]:
    """Return the lines of the last runs of that kind, the oldest first; fewer if there were fewer."""
    runs: dict[str, list[Line]] = {}
    for text in file.read_text().splitlines() if file.exists() else ():
        line = json.loads(text)
        if line["run"] == kind:
            runs.setdefault(line["time"], []).append(line)
    return list(runs.values())[-count:]


def last_run(file: Path, kind: str) -> list[Line]:
    """Return the lines of the last run of that kind, if any."""
    return next(iter(last_runs(file, kind, 1)), [])


def read_published(file: Path = FIGURES) -> dict[str, list[Line]]:
    """Return the published lines by kind of run."""
    published: dict[str, list[Line]] = json.loads(file.read_text()) if file.exists() else {}
    return published


def write_published(published: Mapping[str, Iterable[Line]], file: Path = FIGURES) -> None:
    file.write_text(json.dumps(published, indent=1) + "\n")


def read_ratios(file: Path = BASELINE) -> dict[str, float]:
    """Return the baseline ratios of quick runs, by row."""
    ratios: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}
    return ratios


def write_ratios(ratios: Mapping[str, float], file: Path = BASELINE) -> None:
    file.write_text(json.dumps(dict(ratios), indent=1) + "\n")


def figures_of(lines: Iterable[Line]) -> list[Figure]:
    return [Figure.of_line(line) for line in lines]
