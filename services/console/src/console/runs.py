"""Runs of batch jobs: their reports in a compacted topic, and the differences that audits have found."""

from typing import Any, Final

import structlog

from console.tables import Tables
from contracts.records import JOB_RUN, JobRun
from streamtable import Avro
from streamtable.errors import DeserializationError
from streamtable_admin.errors import NoSuchTopic

log = structlog.get_logger()
RUNS_MAX: Final = 500
KILLED_MS: Final = 60_000
"""A run reports at least every ten seconds: one without a report for this long was killed."""
_CODEC: Final = Avro(JOB_RUN)
_ONLY_IN_ONE: Final = {"inputs", "keys", "omitted"}


class NoSuchRun(Exception):
    """No run of this name is known."""


class Runs:
    """The runs of all jobs, from a copy of their topic. Any thread.

    Args:
        tables: The copies of topics.
        topic: The topic that runs report to.
    """

    def __init__(self, tables: Tables, topic: str) -> None:
        self._tables = tables
        self._topic = topic
        self._known: dict[bytes, tuple[int, dict[str, Any] | None]] = {}

    def latest(self, limit: int, now_ms: int) -> list[dict[str, Any]]:
        """Return the latest runs without their inputs and keys, the latest first. Raises `NoSuchTopic`, `RetryLater`."""
        found = sorted(self._all(), key=lambda run: (run["started_at"], run["run"]), reverse=True)
        return [_judged(run, now_ms) for run in found[:limit]]

    def one(self, name: str, now_ms: int) -> dict[str, Any]:
        """Return all that a run has reported. Raises `NoSuchRun`, `RetryLater`."""
        try:
            value = self._tables.whole(self._topic).get(name.encode())
        except NoSuchTopic:
            raise NoSuchRun from None
        run = None if value is None else _decoded(name.encode(), value)
        if run is None:
            raise NoSuchRun
        return _judged({**run}, now_ms)

    def _all(self) -> list[dict[str, Any]]:
        """Return each run without its lists; unchanged runs are not decoded again."""
        known = {}
        for key, value in self._tables.whole(self._topic).iterate():
            digest, short = self._known.get(key, (None, None))
            if digest != hash(value):
                run = _decoded(key, value)
                short = run and {name: each for name, each in run.items() if name not in _ONLY_IN_ONE}
            known[key] = hash(value), short
        self._known = known
        return [short for _, short in known.values() if short is not None]


def _decoded(key: bytes, value: bytes) -> JobRun | None:
    """Return None for a record that cannot be decoded: any producer may write to the topic, and it must not hide others."""
    try:
        return _CODEC.decode(value)
    except DeserializationError as error:
        log.warning("a run cannot be read", key=key.hex(), reason=str(error))
        return None


def _judged(run: dict[str, Any], now_ms: int) -> dict[str, Any]:
    """Return the run with the state killed if it is not finished and has not reported for a minute."""
    killed = run["state"] == "running" and now_ms - run["at"] > KILLED_MS
    return {**run, "state": "killed" if killed else run["state"]}
