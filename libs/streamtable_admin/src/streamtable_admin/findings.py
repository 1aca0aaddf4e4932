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
