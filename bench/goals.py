"""Goals, and whether figures reach them."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Literal

from bench.figures import Figure

FILE = Path(__file__).with_name("goals.toml")


class Verdict(Enum):
    """The verdict on a figure: whether it reaches its goal."""

    AIM = "aim reached"
    ENOUGH = "enough"
    MISSED = "missed"
    UNKNOWN = "not measured"


@dataclass(frozen=True)
class Goal:
    """One goal.

    Attributes:
        title: The description of the goal.
        row: The row whose figure is compared.
        of: The row that divides it; None: it is not divided.
        figure: The row's value or its CPU per record.
        at_least: The smallest sufficient value, where more is better.
        at_most: The largest sufficient value, where less is better.
        aim: The value aimed for.
    """

    title: str
    row: str
    aim: float
    of: str | None = None
    figure: Literal["value", "cpu"] = "value"
    at_least: float | None = None
    at_most: float | None = None

    def __post_init__(self) -> None:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError(f"goal {self.title!r}: give at_least or at_most")

    @property
    def limit(self) -> str:
        """The limit as text."""
        return f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"

    def reached(self, figures: Mapping[str, Figure]) -> float | None:
        """Return the number to compare with the goal; None if it was not measured."""
        mine = self._number(figures.get(self.row))
        if self.of is None or mine is None:
            return mine
        other = self._number(figures.get(self.of))
        return mine / other if other else None

    def verdict(self, number: float | None) -> Verdict:
        """Judge a measured number."""
        if number is None:
            return Verdict.UNKNOWN
        if self.at_least is not None:
            return Verdict.AIM if number >= self.aim else _enough(number >= self.at_least)
        return Verdict.AIM if number <= self.aim else _enough(number <= (self.at_most or 0))

    def _number(self, figure: Figure | None) -> float | None:
        if figure is None:
            return None
        return figure.cpu_us if self.figure == "cpu" else figure.value


def _enough(enough: bool) -> Verdict:  # noqa: FBT001 - its only argument
    return Verdict.ENOUGH if enough else Verdict.MISSED


def read_goals(file: Path = FILE) -> list[Goal]:
    """Return the goals in a file, in its order."""
    return [Goal(**each) for each in tomllib.loads(file.read_text())["goal"]]


def of_rows(goals: Iterable[Goal], rows: Iterable[str]) -> list[Goal]:
    """Return the goals of rows that were measured."""
    names = set(rows)
    return [goal for goal in goals if goal.row in names and (goal.of is None or goal.of in names)]
