"""Compares quick runs with earlier ratios. Figures would compare machines; ratios within one run compare programs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from bench.figures import Figure

TOLERANCE = 0.2
TRIES = 3
TRIES_SECONDS = 240.0
Ratios = Mapping[str, float]


def ratios(figures: Iterable[Figure]) -> dict[str, float]:
    """Return the ratio of each row that has one."""
    return {each.name: each.ratio for each in figures if each.ratio is not None}


def medians(tries: Sequence[Ratios]) -> dict[str, float]:
    """Return the median of each row over the tries that measured it."""
    rows = dict.fromkeys(row for each in tries for row in each)
    return {row: median([each[row] for each in tries if row in each]) for row in rows}


def worse(now: Ratios, before: Ratios, tolerance: float = TOLERANCE) -> list[str]:
    """Return the rows that have lost more than `tolerance` of their ratio, or were not measured, each as a sentence."""
    sentences = []
    for row, old in before.items():
        new = now.get(row)
        if new is None:
            sentences.append(f"{row} was not measured")
        elif new < old * (1 - tolerance):
            sentences.append(f"{row} is {new:.3f} of its baseline, {1 - new / old:.0%} less than {old:.3f}")
    return sentences


def better(now: Ratios, before: Ratios, tolerance: float = TOLERANCE) -> list[str]:
    """Return the rows that have gained so much that their baseline ratios should be renewed."""
    return [row for row, old in before.items() if now.get(row, old) > old * (1 + tolerance)]


class Held(NamedTuple):
    """The comparison of runs with earlier ratios: losses (see `worse`), gains, and the number of tries."""

    lost: list[str]
    gained: list[str]
    tries: int


def hold(
    measure: Callable[[], Ratios], before: Ratios, clock: Callable[[], float], tries_max: int = TRIES
) -> Held:
    """Measure until there are no losses, at most `tries_max` times and four minutes.

    A loss that is only noise disappears in the median of the tries; a real one stays.

    Args:
        measure: Measures one run.
        before: The baseline ratios.
        clock: A monotonic clock, in seconds.
        tries_max: The number of runs at most.
    """
    began, tries = clock(), list[Ratios]()
    while True:
        tried = clock()
        tries.append(measure())
        found = medians(tries)
        lost, now = worse(found, before), clock()
        if not lost or len(tries) == tries_max or (now - began) + (now - tried) > TRIES_SECONDS:
            return Held(lost, better(found, before), len(tries))
