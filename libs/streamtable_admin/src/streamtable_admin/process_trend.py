"""Changes between the reports of a process: aborted commits, new dead letters, and a lag that grows or stands still."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamtable_admin.findings import Finding, problem, warning
from streamtable_admin.lag_trend import GROWN_MIN, SLOW_ADVICE
from streamtable_admin.text import count, duration

QUIET_MS = 120_000
"""An episode, such as commits that are aborted one after the other, is over when it has not gone on for this long."""
LETTERS_QUIET_MS = 600_000
STUCK_MS = 30_000
"""A process with lag commits every few seconds."""

ABORTS_ADVICE = (
    "the records are processed again, and no result is wrong; see “commit aborted” in the log of that process for the "
    "reason: mostly brokers that acknowledge slowly, or a second process of the same instance id"
)
LETTERS_ADVICE = "see their errors: streamtable dead-letters list GROUP; replay them when the cause is fixed: streamtable dead-letters replay GROUP --all"
CALLS_ADVICE = "they are attempted again by themselves; their errors: streamtable calls list"
GROWS_ADVICE = (
    "records come faster than they are processed: start more processes, up to one per partition, or see what the "
    "handler waits for"
)


@dataclass(slots=True)
class _Episode:
    """A counter that has grown again and again: since when, from which value, to which, and when last."""

    seen: int
    since_ms: int = 0
    base: int = 0
    last_ms: int = 0

    def add(self, value: int, before_ms: int, at_ms: int, quiet_ms: int) -> None:
        if value > self.seen:
            if at_ms - self.last_ms > quiet_ms:
                self.since_ms, self.base = before_ms, self.seen
            self.last_ms = at_ms
        self.seen = value

    def grown(self, now_ms: int, quiet_ms: int) -> int:
        """Return by how much it has grown in the present episode; 0 if there is none."""
        return self.seen - self.base if self.last_ms and now_ms - self.last_ms <= quiet_ms else 0


@dataclass(slots=True)
class _Lag:
    """The lag of a process: its least value since it last fell, and since when there is any."""

    low: int = 0
    low_ms: int = 0
    high: int = 0
    now: int = 0
    since_ms: int = 0

    def add(self, lag: int, at_ms: int) -> None:
        self.since_ms = (self.since_ms or at_ms) if lag else 0
        self.high = max(self.high, lag)
        if not self.low_ms or lag <= self.low or lag < 0.8 * self.high:
            self.low, self.low_ms, self.high = lag, at_ms, lag
        self.now = lag

    def grows(self, at_ms: int) -> bool:
        return self.now - self.low >= max(GROWN_MIN, self.low / 10) and at_ms - self.low_ms >= STUCK_MS


@dataclass(slots=True)
class _Process:
    """The latest report of a process, and its episodes."""

    status: Mapping[str, Any]
    aborts: _Episode
    letters: _Episode
    lag: _Lag = field(default_factory=_Lag)
    calls: dict[str, _Episode] = field(default_factory=dict)


class ProcessTrends:
    """Compares the reports of each process with its earlier ones. It keeps a few numbers for each process."""

    def __init__(self) -> None:
        self._processes: dict[str, _Process] = {}

    def add(self, key: str, status: Mapping[str, Any] | None) -> None:
        """Add the next report of a process, by its key; None: the process has stopped."""
        known = self._processes.get(key)
        if status is None:
            self._processes.pop(key, None)
            return
        if known is None or known.status["started_at"] != status["started_at"]:
            episodes = (_Episode(status["aborts"]), _Episode(status["dead_letters"]))
            known = self._processes[key] = _Process(status, *episodes)
        before_ms, at_ms = known.status["at"], status["at"]
        known.aborts.add(status["aborts"], before_ms, at_ms, QUIET_MS)
        known.letters.add(status["dead_letters"], before_ms, at_ms, LETTERS_QUIET_MS)
        for call in status["calls"]:
            failed = known.calls.setdefault(call["call"], _Episode(call["failed"]))
            failed.add(call["failed"], before_ms, at_ms, LETTERS_QUIET_MS)
        known.lag.add(sum(max(0, each["lag"]) for each in status["inputs"]), at_ms)
        known.status = status

    def keep(self, keys: Mapping[str, Any]) -> None:
        """Forget all other processes."""
        self._processes = {key: each for key, each in self._processes.items() if key in keys}

    def findings(self, now_ms: int) -> Iterator[Finding]:
        """Yield the aborted commits and the new dead letters of each process."""
        for key, each in sorted(self._processes.items()):
            if (number := each.aborts.grown(now_ms, QUIET_MS)) > 0:
                since = each.aborts.since_ms
                reason = f": {each.status['abort_reason']}" if each.status["abort_reason"] else ""
                fact = f"aborted {count(number, 'commit')} in {_for(now_ms, since)}{reason}"
                judged = (
                    warning if number == 1 or each.aborts.last_ms < each.status["committed_at"] else problem
                )
                yield judged(f"process {key}", fact, ABORTS_ADVICE, since)
            if (number := each.letters.grown(now_ms, LETTERS_QUIET_MS)) > 0:
                since = each.letters.since_ms
                fact = f"could not process {count(number, 'record')} in {_for(now_ms, since)}: dead letters"
                yield warning(f"process {key}", fact, LETTERS_ADVICE, since)

    def call_findings(self, now_ms: int) -> Iterator[Finding]:
        """Yield the calls of each process that fail and are pending still."""
        for _, each in sorted(self._processes.items()):
            for call in each.status["calls"]:
                failed = each.calls[call["call"]]
                if call["pending"] and (number := failed.grown(now_ms, LETTERS_QUIET_MS)) > 0:
                    fact = (
                        f"{count(number, 'attempt')} failed in {_for(now_ms, failed.since_ms)}, "
                        f"{count(call['pending'], 'call')} pending, the oldest for {duration(call['oldest_seconds'])}"
                    )
                    yield warning(
                        f"call {each.status['group']} {call['call']}", fact, CALLS_ADVICE, failed.since_ms
                    )

    def lag_findings(self, now_ms: int) -> Iterator[Finding]:
        """Yield the processes whose lag grows, or that commit nothing.

        `add` and `keep` must have got the processes that report now only, with lags in records: those in offsets never fall to zero where topics end with transaction markers.
        """
        for key, each in sorted(self._processes.items()):
            status, lag = each.status, each.lag
            if status["state"] != "ready":
                continue
            idle_since = max(status["committed_at"], lag.since_ms, status["started_at"])
            if lag.now and now_ms - idle_since > STUCK_MS:
                fact = (
                    f"{count(lag.now, 'record')} to do, and nothing committed for {_for(now_ms, idle_since)}"
                )
                yield problem(f"process {key}", fact, SLOW_ADVICE, idle_since)
            elif lag.grows(status["at"]):
                fact = f"lag grows, {lag.low} to {lag.now} in {_for(now_ms, lag.low_ms)}"
                yield warning(f"process {key}", fact, GROWS_ADVICE, lag.low_ms)


def _for(now_ms: int, since_ms: int) -> str:
    return duration(max(0, now_ms - since_ms) / 1000)
