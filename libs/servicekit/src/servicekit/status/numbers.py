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


@dataclass
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

    read: dict[Place, int] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    lags: dict[Place, int] = field(default_factory=dict)
    copies: dict[str, tuple[int, float]] = field(default_factory=dict)
    watermarks: dict[int, int] = field(default_factory=dict)
    due_behind_ms: dict[int, int] = field(default_factory=dict)
    due_rows: dict[Place, int] = field(default_factory=dict)
    late: dict[Place, int] = field(default_factory=dict)
    late_share: dict[Place, float] = field(default_factory=dict)
    moved_by: dict[Place, str] = field(default_factory=dict)
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
    found = ProcessCounters()
    most_late: dict[Place, float] = {}
    for sample in samples:
        name, labels, value = sample.name.removeprefix(_PREFIX), sample.labels, sample.value
        partition = int(labels["partition"]) if "partition" in labels else -1
        place = labels.get("topic", ""), partition
        match name:
            case "records_in_total":
                found.read[place] = found.read.get(place, 0) + int(value)
            case "records_out_total":
                found.sent[place[0]] = found.sent.get(place[0], 0) + int(value)
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
                found.due_rows[place] = int(value)
            case "late_records_total":
                found.late[place] = found.late.get(place, 0) + int(value)
                if value >= most_late.get(place, 0):
                    most_late[place], found.moved_by[place] = value, labels["moved_by"]
            case "late_share":
                found.late_share[place] = value
            case "commit_seconds_sum":
                found.commit_seconds += value
            case "commit_seconds_count":
                found.commits += int(value)
            case "dead_letters_total":
                found.dead_letters += int(value)
            case "aborts_total":
                found.aborts += int(value)
            case "rebalances_total":
                found.rebalances += int(value)
            case "store_bytes":
                found.store_bytes += int(value)
            case "http_requests_total" if labels["route"] not in PROBES:
                found.requests += int(value)
                found.failed_requests += int(value) if labels["status"].startswith("5") else 0
    return found


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
