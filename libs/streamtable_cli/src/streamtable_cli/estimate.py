"""Estimates the resources for a load: processes, processors, memory, disk, network, recovery time. Pure functions.

A record costs its processor three things: itself, its row if that has not been changed yet since the last commit, and
loading that row if it is not in memory. What each of them costs is measured (`Measured`); how often each is needed
follows from the load.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from streamtable_admin.errors import Refused

PLANNED_SHARE = 0.5
"""The share of a process's capacity to plan with: the other half catches up after a stop."""
CACHE_BYTES = 64 << 20
ROW_IN_MEMORY_BYTES = 150
"""The bytes of a decoded row in memory besides its key and value."""
FRAME_BYTES = 10
"""The bytes of a record in Kafka besides its key and value."""
DISK_FACTOR = 4 / 3
"""The size of rows in RocksDB, with the space for compaction, relative to their bytes."""
PROCESS_GB = 0.512
SESSION_S = 45.0
"""Kafka's default session timeout: the seconds after which a dead member is removed from its group."""
DIRTY_FACTOR = 2.0
"""Kafka compacts when half of a topic is superseded."""
COMMIT_BYTES = 16 << 20


@dataclass(frozen=True)
class Measured:
    """The measurements of one process of the benchmark on its machine.

    Attributes:
        record_us: processor time of a record by itself, in microseconds.
        row_us: of a row that a commit writes.
        load_us: of a row that is loaded because it is not in memory.
        call_us: of calling a function for a record.
        idle_cores: processors that a process takes which commits five times a second and has little to do.
        busy_cores: that one takes which never waits.
        restore_rows_s: changelog records that a process loads in a second.
        kafka_us: the brokers' processor time for a record, read and its row written, with one replica; None: not
            measured.
        where: the machine, the commit and the time.
    """

    record_us: float
    row_us: float
    load_us: float
    call_us: float
    idle_cores: float
    busy_cores: float
    restore_rows_s: float
    kafka_us: float | None
    where: str


_OPTIONS = {
    "records_s": "--records", "commit_s": "--commit-ms", "retention_h": "--retention-hours",
    "network_mb_s": "--network-mb", "recovery_s": "--recovery-seconds", "lag_s": "--lag-seconds",
}  # fmt: skip
"""The options of `streamtable capacity` that are not named as the attributes of a `Workload`."""


@dataclass(frozen=True)
class Workload:
    """The load to be carried and the machines to carry it.

    Attributes:
        records_s: of the input, each second.
        keys: rows that the table has in the end.
        partitions: of the input and of the table.
        replicas: of each topic.
        record_bytes: key and value of an input record.
        key_bytes: of a row.
        value_bytes: of a row, encoded.
        active_keys: how many keys most records are about; None: all of them alike.
        handler_us: processor time of your handler for a record, in microseconds; 0: a built-in aggregate.
        commit_s: seconds between commits.
        views: processes that have a copy of the whole table.
        standby: each processor keeps a warm copy of the whole table.
        retention_h: how long inputs are kept, in hours.
        disk_gb: of the machine of a process or a view.
        network_mb_s: that such a machine can read.
        recovery_s: how long a partition may stand still after a crash.
        lag_s: how long the changelog keeps every record: `min.compaction.lag.ms`, an hour as `topics apply` makes it.
    """

    records_s: float
    keys: int
    partitions: int = 12
    replicas: int = 3
    record_bytes: int = 100
    key_bytes: int = 12
    value_bytes: int = 12
    active_keys: int | None = None
    handler_us: float = 0.0
    commit_s: float = 0.2
    views: int = 1
    standby: bool = False
    retention_h: float = 168.0
    disk_gb: float = 500.0
    network_mb_s: float = 1_000.0
    recovery_s: float = 300.0
    lag_s: float = 3600.0

    def __post_init__(self) -> None:
        above_zero = (
            "records_s", "keys", "partitions", "replicas", "record_bytes", "key_bytes", "commit_s", "retention_h",
            "disk_gb", "network_mb_s", "recovery_s",
        )  # fmt: skip
        for name in above_zero:
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise Refused(f"{self._given(name)}: a number above 0 is needed")
        for name in ("value_bytes", "handler_us", "views", "lag_s"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise Refused(f"{self._given(name)}: 0 or a number above it is needed")
        if self.active_keys is not None and not 1 <= self.active_keys <= self.keys:
            raise Refused(f"{self._given('active_keys')}: give 1 to {self.keys}, the table's keys")

    def _given(self, name: str) -> str:
        """Return the option of `streamtable capacity` that has given an attribute, with its value."""
        value = getattr(self, name)
        return f"{_OPTIONS.get(name, f'--{name}'.replace('_', '-'))} {value * 1000 if name == 'commit_s' else value:.15g}"

    @property
    def active(self) -> int:
        return self.keys if self.active_keys is None else self.active_keys

    @property
    def row_bytes(self) -> int:
        return self.key_bytes + self.value_bytes


@dataclass(frozen=True)
class Limit:
    """A limit that a load can exceed.

    Attributes:
        name: what.
        used: the share that the load takes; above 1 it is broken.
        fact: in numbers.
        change: what moves it.
    """

    name: str
    used: float
    fact: str
    change: str


@dataclass(frozen=True)
class Estimate:
    """The resources that a load needs. MB and GB are decimal: 10**6 and 10**9 bytes.

    Attributes:
        changed: The rows that a commit writes, for each record.
        loaded: The rows that are loaded, for each record.
        record_us: The total processor time for a record in its process, in microseconds.
        process_records_s: The records that one process can handle in a second.
        processes: The number of processes needed, including one that may fail.
        cores: The processor cores that all processes use together.
        memory_gb: The memory of all processes together.
        table_gb: The size of one copy of the table on disk.
        process_gb: The disk space of each process.
        changelog_records_s: The rows that are written to the changelog each second.
        changelog_mb_s: The bytes that are written to the changelog each second.
        changelog_gb: The size of the changelog in Kafka, all replicas.
        input_gb: The size of the input in Kafka, all replicas.
        brokers_in_mb_s: The bytes that the brokers receive each second, replication included.
        brokers_out_mb_s: The bytes that the brokers send to processors and views each second.
        kafka_cores: The processor cores of the brokers, without those for replication; None: not measured.
        cold_s: The seconds from a crash with loss of the disk until the partitions are up to date again.
        warm_s: The seconds from a crash until the partitions are up to date again, if another process has a standby replica.
        limits: The limits of the load. The limit that is reached first is the first.
    """

    changed: float
    loaded: float
    record_us: float
    process_records_s: float
    processes: int
    cores: float
    memory_gb: float
    table_gb: float
    process_gb: float
    changelog_records_s: float
    changelog_mb_s: float
    changelog_gb: float
    input_gb: float
    brokers_in_mb_s: float
    brokers_out_mb_s: float
    kafka_cores: float | None
    cold_s: float
    warm_s: float
    limits: tuple[Limit, ...]


def changed_rows(keys: float, records: float) -> float:
    """Return the number of distinct rows that this many records change, if all keys are equally likely."""
    return -keys * math.expm1(-records / keys)


def record_us(load: Workload, measured: Measured, processes: int) -> tuple[float, float, float]:
    """Return the cost of a record in one of this many processes: CPU in microseconds, rows changed, rows loaded."""
    records = load.records_s * load.commit_s
    changed = changed_rows(load.active, records) / records
    held = processes * CACHE_BYTES / (load.row_bytes + ROW_IN_MEMORY_BYTES)
    loaded = changed * (1 - min(1.0, held / load.active))
    called = measured.call_us + load.handler_us if load.handler_us else 0.0
    total = measured.record_us + called + changed * measured.row_us + loaded * measured.load_us
    return total, changed, loaded


def processes_for(load: Workload, measured: Measured) -> int:
    """Return the fewest processes that carry the load at half of their capacity. More processes cache more rows."""

    def needed(processes: int) -> int:
        each = measured.busy_cores * 1e6 / record_us(load, measured, processes)[0]
        return math.ceil(load.records_s / (PLANNED_SHARE * each))

    low, high = 1, needed(1)
    while low < high:
        middle = (low + high) // 2
        if needed(middle) <= middle:
            high = middle
        else:
            low = middle + 1
    return low


def estimate(load: Workload, measured: Measured) -> Estimate:
    """Return the resources for the load, with one process more than it needs: one may be down."""
    carrying = processes_for(load, measured)
    processes = carrying + 1
    cost, changed, loaded = record_us(load, measured, carrying)
    process_records_s = measured.busy_cores * 1e6 / cost
    table_gb = load.keys * load.row_bytes * DISK_FACTOR / 1e9
    changelog_records_s = load.records_s * changed
    changelog_mb_s = changelog_records_s * (load.row_bytes + FRAME_BYTES) / 1e6
    input_mb_s = load.records_s * (load.record_bytes + FRAME_BYTES) / 1e6
    kept = DIRTY_FACTOR * load.keys + load.lag_s * changelog_records_s
    copies = load.views + (processes - 1 if load.standby else 0)
    restore_s = kept / carrying / measured.restore_rows_s
    found = Estimate(
        changed=changed,
        loaded=loaded,
        record_us=cost,
        process_records_s=process_records_s,
        processes=processes,
        cores=processes * measured.idle_cores + load.records_s * cost / 1e6,
        memory_gb=processes * PROCESS_GB,
        table_gb=table_gb,
        process_gb=table_gb if load.standby else table_gb / carrying,
        changelog_records_s=changelog_records_s,
        changelog_mb_s=changelog_mb_s,
        changelog_gb=kept * (load.row_bytes + FRAME_BYTES) * load.replicas / 1e9,
        input_gb=input_mb_s * load.retention_h * 3600 * load.replicas / 1e3,
        brokers_in_mb_s=(input_mb_s + changelog_mb_s) * load.replicas,
        brokers_out_mb_s=input_mb_s + changelog_mb_s * copies,
        kafka_cores=None if measured.kafka_us is None else load.records_s * measured.kafka_us / 1e6,
        cold_s=_caught_up(SESSION_S + restore_s, load.records_s / carrying, process_records_s),
        warm_s=_caught_up(SESSION_S, load.records_s / carrying, process_records_s),
        limits=(),
    )
    limits = sorted(_limits(load, measured, found), key=lambda limit: -limit.used)
    return replace(found, limits=tuple(limits))


def _caught_up(stood_s: float, records_s: float, most: float) -> float:
    """Return the seconds until records that arrived meanwhile are processed too."""
    return stood_s + records_s * stood_s / (most - records_s)


def _limits(load: Workload, measured: Measured, found: Estimate) -> Iterator[Limit]:
    each = load.records_s / load.partitions
    yield Limit(
        "partitions",
        found.processes / load.partitions,
        f"{found.processes} processes share {load.partitions}",
        f"make the topics with {3 * found.processes} before there is data: later it moves keys",
    )
    yield Limit(
        "one partition",
        each / found.process_records_s,
        f"{each:,.0f} records/s of the {found.process_records_s:,.0f} that one process does",
        "more partitions; a built-in aggregate, or a longer commit interval, for keys that come again and again",
    )
    recovery = found.warm_s if load.standby else found.cold_s
    yield Limit(
        "recovery",
        recovery / load.recovery_s,
        f"{recovery:,.0f} s of {load.recovery_s:,.0f} s until a crashed process's partitions are up to date",
        "the broker's session timeout below 45 s"
        if load.standby
        else "disks that outlive the process, STREAMTABLE_STANDBY=all, or a shorter min.compaction.lag.ms",
    )
    yield Limit(
        "disk of a process",
        found.process_gb / load.disk_gb,
        f"{found.process_gb:,.1f} GB of {load.disk_gb:,.0f} GB",
        "no standby: each keeps the whole table" if load.standby else "more processes",
    )
    read = load.records_s * (load.record_bytes + FRAME_BYTES) / 1e6 / found.processes
    read += found.changelog_mb_s if load.standby else 0.0
    yield Limit(
        "network of a process",
        read / load.network_mb_s,
        f"{read:,.1f} MB/s of {load.network_mb_s:,.0f} MB/s",
        "more processes; no standby" if load.standby else "more processes",
    )
    rows = found.changelog_records_s / found.processes * load.commit_s
    yield Limit(
        "rows of one commit",
        rows * load.row_bytes / COMMIT_BYTES,
        f"{rows:,.0f} rows, of the 16 MB that force a commit early",
        "a shorter commit interval, more processes, smaller rows",
    )
    if load.views or load.standby:
        yield Limit(
            "a copy of the table",
            found.changelog_records_s / measured.restore_rows_s,
            f"{found.changelog_records_s:,.0f} changes/s of the {measured.restore_rows_s:,.0f} that one reader follows",
            "a longer commit interval where keys come again; several groups with a part of the keys each; or rows in a "
            "central store, which is asked instead of copied",
        )
        yield Limit(
            "disk of a copy",
            found.table_gb / load.disk_gb,
            f"{found.table_gb:,.1f} GB of {load.disk_gb:,.0f} GB",
            "larger disks; several groups with a part of the keys each; or rows in a central store",
        )
