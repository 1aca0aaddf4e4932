"""Findings of an examination: the fact, its severity, and the action to take."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a report.

    Attributes:
        subject: The subject of the examination.
        fact: The fact that was found.
        advice: The action to take; empty if none is needed.
        since_ms: When it began, in milliseconds since 1970; None if that is not known.
    """

    level: Level
    subject: str
    fact: str
    advice: str = ""
    since_ms: int | None = None


def ok(subject: str, fact: str) -> Finding:
    return Finding(Level.OK, subject, fact)


def warning(subject: str, fact: str, advice: str, since_ms: int | None = None) -> Finding:
    return Finding(Level.WARNING, subject, fact, advice, since_ms)


def problem(subject: str, fact: str, advice: str, since_ms: int | None = None) -> Finding:
    return Finding(Level.PROBLEM, subject, fact, advice, since_ms)
