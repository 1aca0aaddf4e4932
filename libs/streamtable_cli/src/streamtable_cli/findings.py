"""What an examination finds: each a fact, how bad it is, and what to do."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    Attributes:
        subject: what was looked at.
        fact: what was found.
        advice: what to do; empty if nothing.
    """

    level: Level
    subject: str
    fact: str
    advice: str = ""


def ok(subject: str, fact: str) -> Finding:
    return Finding(Level.OK, subject, fact)


def warning(subject: str, fact: str, advice: str) -> Finding:
    return Finding(Level.WARNING, subject, fact, advice)


def problem(subject: str, fact: str, advice: str) -> Finding:
    return Finding(Level.PROBLEM, subject, fact, advice)
