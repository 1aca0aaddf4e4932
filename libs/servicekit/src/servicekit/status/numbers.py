"""The counters of a process, read from its metrics, and their rates."""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.samples import Sample

from servicekit.http.metrics import PROBES

Place = tuple[str, int]
WINDOW_SECONDS: Final = 10.0
_PREFIX: Final = "streamtable_"


@dataclass(frozen=True)
class ProcessCounters:
    """The counters at one moment, since the process started.

    Attributes:
        read: The records read, by topic and partition.
        sent: The records sent, by topic.
        lags: The consumer lag in offsets, by topic and partition.
        copies: For each table that is copied completely, its number of partitions and the age in seconds of the oldest.
        watermarks: The watermarks in milliseconds since 1970, by partition.
        due_behind_ms: The delay of due rows behind their clock in milliseconds, by partition.
        due_rows: The rows that are not due yet, by state table and partition.
        late: The records that arrived after their windows had closed, by state table and partition.
        late_share: The share of such records among those of the last minute, by state table and partition.
        moved_by: The input that had moved the watermark for most of them, by state table and partition.
        commit_seconds: The total duration of all commits.
    """

    read: Mapping[Place, int] = field(default_factory=dict)
    sent: Mapping[str, int] = field(default_factory=dict)
    lags: Mapping[Place, int] = field(default_factory=dict)
    copies: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    watermarks: Mapping[int, int] = field(default_factory=dict)
    due_behind_ms: Mapping[int, int] = field(default_factory=dict)
    due_rows: Mapping[Place, int] = field(default_factory=dict)
    late: Mapping[Place, int] = field(default_factory=dict)
    late_share: Mapping[Place, float] = field(default_factory=dict)
    moved_by: Mapping[Place, str] = field(default_factory=dict)
    commits: int = 0
    commit_seconds: float = 0.0
    dead_letters: int = 0
    aborts: int = 0
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


def numbers_in(registry: CollectorRegistry, others: Collection[str] = ()) -> ProcessCounters:
    """Return the present values of the metrics of `streamtable.observe.Metrics` and `HttpMetrics`.

    Args:
        registry: The registry with the metrics.
        others: Groups of the process whose numbers are left out.
    """
    samples = (sample for family in registry.collect() for sample in family.samples)
    return numbers_of(sample for sample in samples if sample.labels.get("group") not in others)


def numbers_of(samples: Iterable[Sample]) -> ProcessCounters:
    """Return the counters of metric samples; unknown ones are left out."""
    read = Counter[Place]()
    sent, totals = Counter[str](), Counter[str]()
    lags: dict[Place, int] = {}
    copies: dict[str, tuple[int, float]] = {}
    watermarks: dict[int, int] = {}
    behind: dict[int, int] = {}
    due_rows: dict[Place, int] = {}
    late = Counter[Place]()
    late_share: dict[Place, float] = {}
    moved_by: dict[Place, tuple[float, str]] = {}
    commit_seconds = 0.0
    for sample in samples:
        name, labels, value = sample.name.removeprefix(_PREFIX), sample.labels, sample.value
        match name:
            case "records_in_total":
                read[labels["topic"], int(labels["partition"])] += int(value)
            case "records_out_total":
                sent[labels["topic"]] += int(value)
            case "lag_records":
                lags[labels["topic"], int(labels["partition"])] = int(value)
            case "view_age_seconds":
                count, age = copies.get(labels["topic"], (0, 0.0))
                copies[labels["topic"]] = count + 1, max(age, value)
            case "watermark_timestamp_seconds":
                watermarks[int(labels["partition"])] = round(1000 * value)
            case "due_behind_seconds":
                behind[int(labels["partition"])] = round(1000 * value)
            case "due_rows":
                due_rows[labels["topic"], int(labels["partition"])] = int(value)
            case "late_records_total":
                place = labels["topic"], int(labels["partition"])
                late[place] += int(value)
                moved_by[place] = max(moved_by.get(place, (0.0, "")), (value, labels["moved_by"]))
            case "late_share":
                late_share[labels["topic"], int(labels["partition"])] = value
            case "commit_seconds_sum":
                commit_seconds += value
            case "http_requests_total" if labels["route"] not in PROBES:
                totals["requests"] += int(value)
                if labels["status"].startswith("5"):
                    totals["failed"] += int(value)
            case "commit_seconds_count" | "dead_letters_total" | "aborts_total" | "rebalances_total":
                totals[name] += int(value)
            case "store_bytes":
                totals[name] += int(value)
    return ProcessCounters(
        read,
        sent,
        lags,
        copies,
        watermarks,
        behind,
        due_rows,
        late,
        late_share,
        {place: mover for place, (_, mover) in moved_by.items()},
        commits=totals["commit_seconds_count"],
        commit_seconds=commit_seconds,
        dead_letters=totals["dead_letters_total"],
        aborts=totals["aborts_total"],
        rebalances=totals["rebalances_total"],
        requests=totals["requests"],
        failed_requests=totals["failed"],
        store_bytes=totals["store_bytes"],
    )


class Rates:
    """The rates of the counters over the last ten seconds. One thread."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, ProcessCounters]] = deque()

    def add(self, now: float, numbers: ProcessCounters) -> None:
        """Add counters; `now` is monotonic, in seconds."""
        while len(self._seen) > 1 and now - self._seen[0][0] > WINDOW_SECONDS:
            self._seen.popleft()
        self._seen.append((now, numbers))

    def read(self, topic: str) -> float:
        """Records read per second."""
        old, new, seconds = self._ends()
        return (new.read_by_topic.get(topic, 0) - old.read_by_topic.get(topic, 0)) / seconds

    def sent(self, topic: str) -> float:
        """Records sent per second."""
        old, new, seconds = self._ends()
        return (new.sent.get(topic, 0) - old.sent.get(topic, 0)) / seconds

    @property
    def requests(self) -> float:
        """Requests per second."""
        old, new, seconds = self._ends()
        return (new.requests - old.requests) / seconds

    @property
    def commit_ms(self) -> float:
        """The mean duration of the latest commits."""
        old, new, _ = self._ends()
        commits = new.commits - old.commits
        return 1000 * (new.commit_seconds - old.commit_seconds) / commits if commits else 0.0

    def _ends(self) -> tuple[ProcessCounters, ProcessCounters, float]:
        (began, old), (ended, new) = self._seen[0], self._seen[-1]
        return old, new, max(ended - began, 1.0)
