"""Estimates the resources for a load: processes, processors, memory, disk, network, recovery time. Pure functions.

A record has three costs: the record itself, its row if that is its first change since the last commit, and loading that
row if it is not in memory. `Measured` has the cost of each; the load determines how often each occurs.
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
        record_us: The CPU time of a record without its row, in microseconds.
        row_us: The CPU time of a row that a commit writes, in microseconds.
        load_us: The CPU time of loading a row that is not in memory, in microseconds.
        call_us: The CPU time of calling a function for a record, in microseconds.
        idle_cores: The processor cores that an almost idle process with five commits per second uses.
        busy_cores: The processor cores that a fully loaded process uses.
        restore_rows_s: The changelog records that a process restores per second.
        kafka_us: The brokers' CPU time per record, including the write of its row, with one replica; None: not measured.
        where: The machine, the commit and the time of the measurement.
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
        records_s: The input records per second.
        keys: The final number of rows in the table.
        partitions: The partitions of the input and of the table.
        replicas: The replicas of each topic.
        record_bytes: The size of an input record's key and value.
        key_bytes: The size of a row's key.
        value_bytes: The size of a row's encoded value.
        active_keys: The number of keys that most records have; None: all keys are equally likely.
        handler_us: The CPU time of your handler per record, in microseconds; 0: a built-in aggregate.
        commit_s: The seconds between commits.
        views: The processes with a copy of the whole table.
        standby: Whether each processor keeps a standby replica of the whole table.
        retention_h: The retention of the inputs, in hours.
        disk_gb: The disk of the machine of each process or view.
        network_mb_s: The network read rate of such a machine.
        recovery_s: The longest acceptable recovery of a partition after a crash.
        lag_s: The time for which the changelog keeps every record: `min.compaction.lag.ms`, an hour by default of
            `topics apply`.
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
            "records_s",
            "keys",
            "partitions",
            "replicas",
            "record_bytes",
            "key_bytes",
            "commit_s",
            "retention_h",
            "disk_gb",
            "network_mb_s",
            "recovery_s",
        )
        for name in above_zero:
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise Refused(f"{self._given(name)}: must be above 0")
        for name in ("value_bytes", "handler_us", "views", "lag_s"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise Refused(f"{self._given(name)}: must be 0 or more")
        if self.active_keys is not None and not 1 <= self.active_keys <= self.keys:
            raise Refused(f"{self._given('active_keys')}: give 1 to {self.keys}, the table's keys")

    def _given(self, name: str) -> str:
        """Return the option of `streamtable capacity` for an attribute, with its value."""
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
        name: The name of the limit.
        used: The share that the load uses; above 1, the limit is exceeded.
        fact: The numbers of that share.
        change: The remedy.
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
    """Return the seconds until the backlog of the pause is processed too."""
    return stood_s + records_s * stood_s / (most - records_s)


def _limits(load: Workload, measured: Measured, found: Estimate) -> Iterator[Limit]:
    each = load.records_s / load.partitions
    yield Limit(
        "partitions",
        found.processes / load.partitions,
        f"{found.processes} processes share {load.partitions}",
        f"create the topics with {3 * found.processes} before there is data: a later change moves keys",
    )
    yield Limit(
        "one partition",
        each / found.process_records_s,
        f"{each:,.0f} records/s of the {found.process_records_s:,.0f} that one process handles",
        "more partitions; a built-in aggregate, or a longer commit interval for frequently repeated keys",
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
            "a longer commit interval if keys are repeated; several groups with a part of the keys each; or rows in a "
            "central store, which is queried instead of copied",
        )
        yield Limit(
            "disk of a copy",
            found.table_gb / load.disk_gb,
            f"{found.table_gb:,.1f} GB of {load.disk_gb:,.0f} GB",
            "larger disks; several groups with a part of the keys each; or rows in a central store",
        )
