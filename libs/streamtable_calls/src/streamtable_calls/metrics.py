"""The metrics of the calls of a process."""

from collections import Counter as Counts
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from prometheus_client import Counter, Gauge, Histogram

from streamtable.observe import Metrics, instrument

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_CALL = ("group", "call")


class AttemptOutcome(NamedTuple):
    """The outcome of an attempt: `outcome` is "answered", "retried" or "failed"."""

    call: str
    outcome: str


class PendingNow(NamedTuple):
    """The pending calls of one `Call` in a process.

    Attributes:
        pending: Their number.
        running: How many of them run.
        made_ms: The event time of the oldest, in milliseconds since 1970; None: there is none, or it has none.
    """

    pending: int
    running: int
    made_ms: int | None


# ruff: noqa: RUF009 - an instrument is declared by the field that `instrument` returns
@dataclass(frozen=True)
class CallInstruments:
    """The instruments of all calls of a process, with the labels `group` and `call`.

    Attributes:
        pending: The calls that are pending.
        running: The calls whose function runs.
        oldest_seconds: The age of the oldest pending call, by the event time of its record.
        attempts: The attempts that have ended, by `outcome`.
        seconds: How long the function ran.
    """

    pending: Gauge = instrument(Gauge, "calls_pending", "Calls that are pending", *_CALL)
    running: Gauge = instrument(Gauge, "calls_running", "Calls whose function runs", *_CALL)
    oldest_seconds: Gauge = instrument(
        Gauge, "calls_oldest_seconds", "Age of the oldest pending call, by its event time", *_CALL
    )
    attempts: Counter = instrument(
        Counter, "calls_attempts", "Attempts of calls that have ended", *_CALL, "outcome"
    )
    seconds: Histogram = instrument(
        Histogram, "calls_seconds", "Duration of attempts of calls", *_CALL, buckets=_SECONDS
    )


class CallMeters:
    """Keeps the metrics of the calls of one group in a process.

    Args:
        group: The name of the group.

    Attributes:
        attempts: The attempts whose outcome is committed, since the start. The main thread adds to it.
    """

    def __init__(self, group: str) -> None:
        self.attempts = Counts[AttemptOutcome]()
        self._group = group
        self._shown = Counts[AttemptOutcome]()
        self._metrics: CallInstruments | None = None

    def update(
        self,
        metrics: Metrics,
        pending: Mapping[str, PendingNow],
        seconds: Mapping[str, Sequence[float]],
        now_ms: int,
    ) -> None:
        """Set the metrics.

        Args:
            metrics: The metrics of the process.
            pending: The pending calls, by the name of the call.
            seconds: The durations of the attempts that have ended since the last time, in seconds, by the name of the call.
            now_ms: The time, in milliseconds since 1970.
        """
        found = self._metrics = metrics.of(CallInstruments)
        for name, each in pending.items():
            found.pending.labels(self._group, name).set(each.pending)
            found.running.labels(self._group, name).set(each.running)
            age = 0.0 if each.made_ms is None else max(0, now_ms - each.made_ms) / 1000
            found.oldest_seconds.labels(self._group, name).set(age)
        for name, durations in seconds.items():
            for each_seconds in durations:
                found.seconds.labels(self._group, name).observe(each_seconds)
        attempts = Counts(dict(self.attempts))
        for attempt, count in (attempts - self._shown).items():
            found.attempts.labels(self._group, *attempt).inc(count)
        self._shown = attempts

    def close(self, names: Sequence[str]) -> None:
        """Drop the gauges of the calls with these names, which would be reported for ever."""
        if self._metrics is not None:
            for gauge in (self._metrics.pending, self._metrics.running, self._metrics.oldest_seconds):
                for name in names:
                    gauge.remove(self._group, name)
