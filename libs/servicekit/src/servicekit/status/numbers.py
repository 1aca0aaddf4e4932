"""The counters of a process, read from its metrics, and their rates."""

from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry

from contracts.records import CallStatus, DueStatus
from servicekit.http.metrics import PROBES

Place = tuple[str, int]
WINDOW_SECONDS: Final = 10.0
_PREFIX: Final = "streamtable_"
_SUMS: Final = {
    "commit_seconds_sum": "commit_seconds",
    "commit_seconds_count": "commits",
    "dead_letters_total": "dead_letters",
    "rebalances_total": "rebalances",
    "store_bytes": "store_bytes",
}
"""The counters that are the sums of the samples with a name."""


@dataclass
class ProcessCounters:
    """The counters at one moment, since the process started.

    Attributes:
        read: The records read, by topic and partition.
        sent: The records sent, by topic.
        queried: The answers of other processes, by the topic of the table that was asked for.
        lags: The consumer lag in offsets, by topic and partition.
        copies: For each table that is copied completely, its number of partitions and the age in seconds of the oldest.
        watermarks: The watermarks in milliseconds since 1970, by partition.
        due_behind_ms: The delay of due rows behind their clock in milliseconds, by partition.
        due: The rows that are not due yet and the late records, by state table and partition.
        calls: The calls to the outside by name, without their rates.
        aborts: The aborted transactions, by reason.
        commit_seconds: The total duration of all commits.
    """

    read: dict[Place, int] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    queried: dict[str, int] = field(default_factory=dict)
    lags: dict[Place, int] = field(default_factory=dict)
    copies: dict[str, tuple[int, float]] = field(default_factory=dict)
    watermarks: dict[int, int] = field(default_factory=dict)
    due_behind_ms: dict[int, int] = field(default_factory=dict)
    due: dict[Place, DueStatus] = field(default_factory=dict)
    calls: dict[str, CallStatus] = field(default_factory=dict)
    aborts: dict[str, int] = field(default_factory=dict)
    commits: int = 0
    commit_seconds: float = 0.0
    dead_letters: int = 0
    rebalances: int = 0
    requests: int = 0
    failed_requests: int = 0
    store_bytes: int = 0

    @property
    def read_by_topic(self) -> Mapping[str, int]:
        counts = Counter[str]()
        for (topic, _), count in self.read.items():
            counts[topic] += count
        return counts

    def due_at(self, topic: str, partition: int) -> DueStatus:
        """Return the numbers of a state table's partition, to be changed."""
        empty = DueStatus(topic=topic, partition=partition, rows=0, late=0, late_share=0.0, moved_by="")
        return self.due.setdefault((topic, partition), empty)

    def call(self, name: str) -> CallStatus:
        """Return the numbers of a call, to be changed."""
        empty = CallStatus(call=name, pending=0, oldest_seconds=0.0, answered=0, rate=0.0, failed=0)
        return self.calls.setdefault(name, empty)


def numbers_in(registry: CollectorRegistry, others: Collection[str] = ()) -> ProcessCounters:
    """Return the present values of the metrics of `streamtable.observe.Metrics` and `HttpMetrics`.

    Args:
        registry: The registry with the metrics.
        others: Groups of the process whose numbers are left out.
    """
    found = ProcessCounters()
    most_late: dict[Place, float] = {}
    for sample in (each for family in registry.collect() for each in family.samples):
        if sample.labels.get("group") in others:
            continue
        name, labels, value = sample.name.removeprefix(_PREFIX), sample.labels, sample.value
        partition = int(labels["partition"]) if "partition" in labels else -1
        place = labels.get("topic", ""), partition
        match name:
            case "records_in_total":
                found.read[place] = found.read.get(place, 0) + int(value)
            case "records_out_total":
                found.sent[place[0]] = found.sent.get(place[0], 0) + int(value)
            case "queries_answered_total":
                found.queried[place[0]] = int(value)
            case "lag_records":
                found.lags[place] = int(value)
            case "view_age_seconds":
                count, age = found.copies.get(place[0], (0, 0.0))
                found.copies[place[0]] = count + 1, max(age, value)
            case "watermark_timestamp_seconds":
                found.watermarks[partition] = round(1000 * value)
            case "due_behind_seconds":
                found.due_behind_ms[partition] = round(1000 * value)
            case "due_rows":
                found.due_at(*place)["rows"] = int(value)
            case "late_records_total":
                found.due_at(*place)["late"] += int(value)
                if value >= most_late.get(place, 0):
                    most_late[place], found.due_at(*place)["moved_by"] = value, labels["moved_by"]
            case "late_share":
                found.due_at(*place)["late_share"] = value
            case "calls_pending":
                found.call(labels["call"])["pending"] = int(value)
            case "calls_oldest_seconds":
                found.call(labels["call"])["oldest_seconds"] = value
            case "calls_attempts_total" if labels["outcome"] == "answered":
                found.call(labels["call"])["answered"] += int(value)
            case "calls_attempts_total":
                found.call(labels["call"])["failed"] += int(value)
            case "aborts_total":
                found.aborts[labels["reason"]] = int(value)
            case _ if name in _SUMS:
                before = getattr(found, _SUMS[name])
                setattr(found, _SUMS[name], before + type(before)(value))
            case "http_requests_total" if labels["route"] not in PROBES:
                found.requests += int(value)
                found.failed_requests += int(value) if labels["status"].startswith("5") else 0
    return found


class Rates:
    """The rates of the counters over the last ten seconds. One thread."""

    def __init__(self) -> None:
        self.abort_reason = ""  # of the latest aborted transaction; empty: there was none
        self._seen: deque[tuple[float, ProcessCounters]] = deque()

    def add(self, now: float, numbers: ProcessCounters) -> None:
        """Add counters; `now` is monotonic, in seconds."""
        before = self._seen[-1][1].aborts if self._seen else {}
        for reason, count in numbers.aborts.items():
            if count > before.get(reason, 0):
                self.abort_reason = reason
        while len(self._seen) > 1 and now - self._seen[0][0] > WINDOW_SECONDS:
            self._seen.popleft()
        self._seen.append((now, numbers))

    def read(self, topic: str) -> float:
        """Records read per second."""
        return self._rate(lambda each: each.read_by_topic.get(topic, 0))

    def sent(self, topic: str) -> float:
        """Records sent per second."""
        return self._rate(lambda each: each.sent.get(topic, 0))

    def queried(self, table: str) -> float:
        """Queries about a table answered by other processes per second."""
        return self._rate(lambda each: each.queried.get(table, 0))

    def answered(self, call: str) -> float:
        """Calls answered per second."""
        return self._rate(lambda each: each.call(call)["answered"])

    @property
    def requests(self) -> float:
        """Requests per second."""
        return self._rate(lambda each: each.requests)

    @property
    def commit_ms(self) -> float:
        """The mean duration of the latest commits."""
        old, new, _ = self._ends()
        commits = new.commits - old.commits
        return 1000 * (new.commit_seconds - old.commit_seconds) / commits if commits else 0.0

    def _rate(self, count: Callable[[ProcessCounters], int]) -> float:
        old, new, seconds = self._ends()
        return (count(new) - count(old)) / seconds

    def _ends(self) -> tuple[ProcessCounters, ProcessCounters, float]:
        (began, old), (ended, new) = self._seen[0], self._seen[-1]
        return old, new, max(ended - began, 1.0)
