"""Figures: the measured rows of the benchmark, and their arithmetic."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self


@dataclass(frozen=True)
class Figure:
    """The result of one row.

    Attributes:
        name: The name of the row.
        value: The measured value; None if the measurement failed.
        unit: The unit of the value.
        baseline: The name of the row that it is compared with.
        ratio: The value divided by the baseline's.
        cpu_seconds: The CPU time of all threads of the measured process in the interval of the value.
        rss_mb: The peak resident memory of the process.
        records: The number of records of the value and the CPU seconds; of requests where there are no records.
        p99_us: The 99th percentile of the requests' latency, in microseconds.
        error: The reason why there is no value.
    """

    name: str
    value: float | None
    unit: str
    baseline: str | None = None
    ratio: float | None = None
    cpu_seconds: float | None = None
    rss_mb: float | None = None
    records: int | None = None
    p99_us: float | None = None
    error: str | None = None

    @property
    def cpu_us(self) -> float | None:
        """CPU microseconds per record."""
        if not self.records or self.cpu_seconds is None:
            return None
        return self.cpu_seconds / self.records * 1e6

    def compared(self, name: str | None, others: Mapping[str, "Figure"]) -> "Figure":
        """Return this figure with its baseline and the ratio, if the baseline was measured."""
        other = others.get(name) if name is not None else None
        ratio = None
        if self.value is not None and other is not None and other.value:
            ratio = self.value / other.value
        return replace(self, baseline=name, ratio=ratio)

    def line(self) -> dict[str, Any]:
        """Return the figure as it is written, rounded to four digits."""
        return {name: rounded(value) for name, value in asdict(self).items()}

    @classmethod
    def of_line(cls, line: Mapping[str, Any]) -> Self:
        """Return the figure in a line that may have further members."""
        return cls(**{name: line[name] for name in cls.__dataclass_fields__ if name in line})


def rounded(value: Any) -> Any:
    """Return a number with four significant digits, keeping all digits before the point; anything else unchanged."""
    if not isinstance(value, float) or not value:
        return value
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    return round(value, digits) if digits else float(round(value))


def percentile(values: Iterable[float], percent: float) -> float:
    """Return the smallest value that at least this percentage of all values does not exceed."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("there are no values to take a percentile of")
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def middle(figures: Sequence[Figure]) -> Figure:
    """Return the median try by value, the lower one of two. A failed try sorts before all others."""
    if failed := next((figure for figure in figures if figure.value is None), None):
        return failed
    return sorted(figures, key=lambda figure: figure.value or 0.0)[(len(figures) - 1) // 2]


def by_name(figures: Iterable[Figure]) -> dict[str, Figure]:
    """Return the last figure of each name."""
    return {figure.name: figure for figure in figures}
