"""What has happened, found by comparing what processes tell with what they had told; and lags over time."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

EVENTS_MAX: Final = 500
POINTS_MAX: Final = 300
SERIES_MAX: Final = 2000
KEPT_MS: Final = 60_000
"""A partition that nobody tells of keeps its series for a minute, so that a rebalance leaves no gap."""


@dataclass(frozen=True)
class Event:
    """Something that happened.

    Attributes:
        at: milliseconds since 1970.
        kind: started, stopped, failed, silent, back, recovered, rebalance, dead letters or aborts.
        who: the key of the process.
        text: for people.
    """

    at: int
    kind: str
    who: str
    text: str

    def document(self) -> dict[str, Any]:
        return {"at": self.at, "kind": self.kind, "who": self.who, "text": self.text}


def events_between(
    before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]], now_ms: int
) -> Iterator[Event]:
    """What has happened from one look at the instances, by key, to the next."""
    for key in sorted(before.keys() - after.keys()):
        yield Event(now_ms, "stopped", key, "stopped in order, or has been silent for a day")
    for key in sorted(after.keys() - before.keys()):
        yield Event(after[key]["started_at"], "started", key, f"started, process {after[key]['pid']}")
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
                yield Event(now_ms, "silent", key, "has told nothing for 15 seconds")
            case "silent", state:
                yield Event(now_ms, "back", key, f"tells again: {state}")
            case "recovering", "ready":
                yield Event(now_ms, "recovered", key, "all partitions are at work")
    had, has = ({each["partition"] for each in side["partitions"]} for side in (old, new))
    if had != has:
        parts = [
            f"{word} {_numbers(which)}" for word, which in (("got", has - had), ("gave", had - has)) if which
        ]
        yield Event(now_ms, "rebalance", key, f"{', '.join(parts)}; has {len(has)}")
    for name, kind in (("dead_letters", "dead letters"), ("aborts", "aborts")):
        if new[name] > old[name]:
            yield Event(now_ms, kind, key, f"{new[name] - old[name]} more, {new[name]} since its start")


def _numbers(partitions: set[int]) -> str:
    return ", ".join(map(str, sorted(partitions)))


class History:
    """The latest events, and the lag of each group's partitions over time. One thread writes, any may read."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._lags: dict[tuple[str, str, int], deque[tuple[int, int]]] = {}
        self._before: Mapping[str, Mapping[str, Any]] | None = None
        self.count = 0

    def look(self, instances: list[dict[str, Any]], now_ms: int) -> None:
        """Compare with the last look. At the first one nothing has happened."""
        after = {each["key"]: each for each in instances}
        if self._before is not None:
            for event in events_between(self._before, after, now_ms):
                self._events.append(event)
                self.count += 1
        self._before = after

    def measure(self, instances: list[dict[str, Any]], now_ms: int) -> None:
        """Add a point to each series; those of partitions that nobody works on any more are dropped."""
        seen = set()
        for each in instances:
            if each["state"] in {"silent", "failed"}:
                continue
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
        """The latest first."""
        ordered = sorted(self._events.copy(), key=lambda event: event.at)
        return [event.document() for event in reversed(ordered)]

    def lags(self) -> list[dict[str, Any]]:
        """Points are pairs of milliseconds since 1970 and offsets."""
        return [
            {
                "group": group,
                "topic": topic,
                "partition": partition,
                "points": [list(point) for point in list(points)],
            }
            for (group, topic, partition), points in sorted(dict(self._lags).items())
        ]
