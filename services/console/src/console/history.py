"""Events, found by comparing the reports of processes with earlier ones; and lags over time."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from console.fleet import instances_of
from console.statuses import ENTRIES_MAX, PROCESSES_MAX, entries_of
from contracts.records import ProcessStatus
from streamtable_admin.process_status import FORGOTTEN_MS, SILENT_MS

EVENTS_MAX: Final = 500
POINTS_MAX: Final = 300
SERIES_MAX: Final = 2000
MEASURE_MS: Final = 20_000
HOUR_MS: Final = 3_600_000
GROUPS_MAX: Final = 100
"""The maximum number of groups that are measured for an hour: their points take three megabytes."""
KEPT_MS: Final = 60_000
"""A partition that no process reports keeps its series for a minute, so that a rebalance leaves no gap."""


class StatusReport(NamedTuple):
    """A record of the status topic; without a status, the process has deleted its record.

    Attributes:
        at: The time in milliseconds since 1970.
    """

    key: str
    status: ProcessStatus | None
    at: int


@dataclass(frozen=True)
class Event:
    """Something that happened.

    Attributes:
        at: The time in milliseconds since 1970.
        kind: One of started, stopped, failed, silent, back, recovered, rebalance, dead letters or aborts.
        who: The key of the process.
        text: The description for people.
        amount: The number of aborts or dead letters.
        reason: The reason of the latest abort; empty if it is not known.
    """

    at: int
    kind: str
    who: str
    text: str
    amount: int = 0
    reason: str = ""

    def document(self) -> dict[str, Any]:
        return asdict(self)


def events_between(
    before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]], now_ms: int
) -> Iterator[Event]:
    """Yield the events between two polls of the instances, which are by key."""
    for key in sorted(before.keys() - after.keys()):
        yield Event(now_ms, "stopped", key, "stopped in order, or has been silent for a day")
    for key in sorted(after.keys() - before.keys()):
        yield Event(after[key]["started_at"], "started", key, f"started, process {after[key]['pid']}")
        if after[key]["state"] == "failed":
            yield Event(after[key]["at"], "failed", key, f"ended by {after[key]['error']}")
    for key in sorted(before.keys() & after.keys()):
        yield from _changes(before[key], after[key], now_ms)


def _changes(old: Mapping[str, Any], new: Mapping[str, Any], now_ms: int) -> Iterator[Event]:
    key = new["key"]
    if old["started_at"] != new["started_at"]:
        yield Event(new["started_at"], "started", key, f"started again, process {new['pid']}, without a stop")
        return
    if old["state"] != new["state"]:
        match old["state"], new["state"]:
            case _, "failed":
                yield Event(now_ms, "failed", key, f"ended by {new['error']}")
            case _, "silent":
                yield Event(new["at"] + SILENT_MS, "silent", key, "has not reported for 15 seconds")
            case "silent", state:
                yield Event(now_ms, "back", key, f"reports again: {state}")
            case "recovering", "ready":
                yield Event(now_ms, "recovered", key, "all partitions are recovered")
    had, has = ({each["partition"] for each in side["partitions"]} for side in (old, new))
    if had != has:
        parts = [
            f"{word} {_numbers(which)}" for word, which in (("got", has - had), ("gave", had - has)) if which
        ]
        yield Event(now_ms, "rebalance", key, f"{', '.join(parts)}; has {len(has)}")
    for name, kind in (("dead_letters", "dead letters"), ("aborts", "aborts")):
        if new[name] > old[name]:
            more = new[name] - old[name]
            reason = new["abort_reason"] if name == "aborts" else ""
            text = f"{more} more, {new[name]} since its start" + (f": {reason}" if reason else "")
            yield Event(now_ms, kind, key, text, more, reason)


def _numbers(partitions: set[int]) -> str:
    return ", ".join(map(str, sorted(partitions)))


def _instance(key: str, status: ProcessStatus | None, now_ms: int) -> dict[str, Mapping[str, Any]]:
    """Return a process, by its key, in its state at that time; empty if there is no status, or it is too old."""
    return {each["key"]: each for each in instances_of({} if status is None else {key: status}, now_ms)}


def _left_of(
    key: str, status: ProcessStatus | None, until_ms: int, events: list[Event]
) -> dict[str, Mapping[str, Any]]:
    """Return a process that has not reported until then, in its state at that time, and add its events."""
    if status is None:
        return {}
    left = _instance(key, status, until_ms)
    over = min(until_ms, status["at"] + FORGOTTEN_MS)
    events += events_between(_instance(key, status, status["at"]), left, over)
    return left


class History:
    """The latest events, and the lag of each group's partitions over time. One thread writes, any may read."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._lags: dict[tuple[str, str, int], deque[tuple[int, int]]] = {}
        self._measures: dict[str, deque[tuple[int, int, int, int]]] = {}
        self._measured_ms = 0
        self._before: Mapping[str, Mapping[str, Any]] = {}
        self.count = 0

    def recall(self, records: Iterable[StatusReport], now_ms: int) -> None:
        """Find the events before the first poll, from the reports of processes in order."""
        events: list[Event] = []
        last: dict[str, ProcessStatus] = {}
        entries_left = ENTRIES_MAX
        for key, status, at in records:
            if key not in last and len(last) >= PROCESSES_MAX:
                continue
            if entries_of(status) > entries_left + entries_of(last.get(key)):
                continue
            entries_left += entries_of(last.get(key)) - entries_of(status)
            quiet = _left_of(key, last.pop(key, None), at, events)
            events += events_between(quiet, _instance(key, status, at), at)
            if status is not None:
                last[key] = status
        before: dict[str, Mapping[str, Any]] = {}
        for key, status in last.items():
            before |= _left_of(key, status, now_ms, events)
        self._before = before
        self._add(sorted(events, key=lambda event: event.at))

    def look(self, instances: list[dict[str, Any]], now_ms: int) -> None:
        """Compare with the last poll. At the first one, every process counts as started."""
        after = {each["key"]: each for each in instances}
        self._add(events_between(self._before, after, now_ms))
        self._before = after

    def _add(self, events: Iterable[Event]) -> None:
        for event in events:
            self._events.append(event)
            self.count += 1

    def measure(self, instances: list[dict[str, Any]], now_ms: int) -> None:
        """Add a point to each series; the series of partitions that no process owns any more are dropped."""
        seen = set()
        live = [each for each in instances if each["state"] not in {"silent", "failed"}]
        self._measure_groups(live, now_ms)
        for each in live:
            for place in each["inputs"]:
                name = (each["group"], place["topic"], place["partition"])
                if place["lag"] >= 0 and (name in self._lags or len(self._lags) < SERIES_MAX):
                    seen.add(name)
                    self._lags.setdefault(name, deque(maxlen=POINTS_MAX)).append((now_ms, place["lag"]))
        for name in [
            name
            for name, points in self._lags.items()
            if name not in seen and now_ms - points[-1][0] > KEPT_MS
        ]:
            del self._lags[name]

    def events(self) -> list[dict[str, Any]]:
        """Return the events, the latest first."""
        ordered = sorted(self._events.copy(), key=lambda event: event.at)
        return [event.document() for event in reversed(ordered)]

    def measures(self) -> list[dict[str, Any]]:
        """Return for each group its points: the time, records a second in, lag, and mean commit time in milliseconds."""
        return [
            {"group": group, "points": list(map(list, list(points)))}
            for group, points in sorted(dict(self._measures).items())
        ]

    def _measure_groups(self, live: list[dict[str, Any]], now_ms: int) -> None:
        if now_ms - self._measured_ms < MEASURE_MS:
            return
        self._measured_ms = now_ms
        groups: dict[str, list[dict[str, Any]]] = {}
        for each in live:
            if each["group"]:
                groups.setdefault(each["group"], []).append(each)
        for group, members in groups.items():
            if group not in self._measures and len(self._measures) >= GROUPS_MAX:
                continue
            flows = (flow["rate"] for each in members for flow in each["flows"] if flow["direction"] == "in")
            commit_ms = sum(each["commit_ms"] for each in members) / len(members)
            point = (now_ms, round(sum(flows)), sum(each["lag"] for each in members), round(commit_ms))
            self._measures.setdefault(group, deque(maxlen=HOUR_MS // MEASURE_MS)).append(point)
        for group in [name for name, points in self._measures.items() if now_ms - points[-1][0] > HOUR_MS]:
            del self._measures[group]

    def lags(self) -> list[dict[str, Any]]:
        """Return the series; their points are pairs of milliseconds since 1970 and offsets."""
        return [
            {
                "group": group,
                "topic": topic,
                "partition": number,
                "points": [list(each) for each in [*points]],
            }
            for (group, topic, number), points in sorted(dict(self._lags).items())
        ]
