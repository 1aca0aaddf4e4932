"""`streamtable capacity`: the resources that a load needs, and the limit that it reaches first."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from streamtable_admin.errors import NotFound, Refused
from streamtable_admin.text import count, duration
from streamtable_cli.estimate import PLANNED_SHARE, Estimate, Measured, Workload, estimate
from streamtable_cli.output import AsJson, note, show_json, show_table

HEAD = ("what", "how much", "why")
LIMITS_HEAD = ("what breaks first", "used", "in numbers", "what to change")
DEFAULT = Workload(1, 1)
TERABYTE_GB = 1e3
SHOWN = 5


def capacity(
    records: Annotated[float, typer.Option(metavar="N", help="Input records per second.")],
    keys: Annotated[int, typer.Option(metavar="N", help="Final number of rows in the table.")],
    partitions: Annotated[
        int, typer.Option(metavar="N", help="Partitions of input and table.")
    ] = DEFAULT.partitions,
    replicas: Annotated[int, typer.Option(metavar="N", help="Of each topic.")] = DEFAULT.replicas,
    record_bytes: Annotated[
        int, typer.Option(metavar="BYTES", help="Size of an input record's key and value.")
    ] = DEFAULT.record_bytes,
    key_bytes: Annotated[int, typer.Option(metavar="BYTES", help="Size of a row's key.")] = DEFAULT.key_bytes,
    value_bytes: Annotated[
        int, typer.Option(metavar="BYTES", help="Size of a row's encoded value.")
    ] = DEFAULT.value_bytes,
    active_keys: Annotated[
        int | None,
        typer.Option(metavar="N", help="Keys that most records have. Default: all are equally likely."),
    ] = None,
    handler_us: Annotated[
        float,
        typer.Option(metavar="US", help="CPU time of your handler per record; 0: a built-in aggregate."),
    ] = DEFAULT.handler_us,
    commit_ms: Annotated[float, typer.Option(metavar="MS", help="Between two commits.")] = 200.0,
    views: Annotated[
        int, typer.Option(metavar="N", help="Number of views and queries, each with a copy of the table.")
    ] = DEFAULT.views,
    retention_hours: Annotated[
        float, typer.Option(metavar="HOURS", help="Retention of the inputs.")
    ] = DEFAULT.retention_h,
    disk_gb: Annotated[
        float, typer.Option(metavar="GB", help="Disk of the machine of each process or view.")
    ] = DEFAULT.disk_gb,
    network_mb: Annotated[
        float, typer.Option(metavar="MB/S", help="Network read rate of such a machine.")
    ] = DEFAULT.network_mb_s,
    recovery_seconds: Annotated[
        float, typer.Option(metavar="SECONDS", help="Longest acceptable recovery after a crash.")
    ] = DEFAULT.recovery_s,
    lag_seconds: Annotated[
        float, typer.Option(metavar="SECONDS", help="min.compaction.lag.ms of the table's topic, in seconds.")
    ] = DEFAULT.lag_s,
    measured: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Measurements of your machine: measured.json after `make bench`."),
    ] = None,
    *,
    standby: Annotated[
        bool, typer.Option("--standby", help="Each processor keeps a standby replica of the table.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Estimate the resources for a load: processes, processors, memory, disk, network, recovery; and its nearest limit.

    A model over figures of the benchmark; does not connect to Kafka. Exit code 1 if a limit is exceeded.
    """
    load = Workload(
        records_s=records,
        keys=keys,
        partitions=partitions,
        replicas=replicas,
        record_bytes=record_bytes,
        key_bytes=key_bytes,
        value_bytes=value_bytes,
        active_keys=active_keys,
        handler_us=handler_us,
        commit_s=commit_ms / 1000,
        views=views,
        standby=standby,
        retention_h=retention_hours,
        disk_gb=disk_gb,
        network_mb_s=network_mb,
        recovery_s=recovery_seconds,
        lag_s=lag_seconds,
    )
    known = read_measured(measured)
    found = estimate(load, known)
    if as_json:
        show_json({"load": asdict(load), "measured": asdict(known), "estimate": asdict(found)})
    else:
        show_table(HEAD, figures(load, found))
        print()
        show_table(LIMITS_HEAD, limits(found))
        note(f"Based on measurements on: {known.where}.")
    if found.limits[0].used > 1:
        raise typer.Exit(1)


def read_measured(file: Path | None = None) -> Measured:
    """Return the measurements in a file, or those of the published benchmark.

    Raises:
        NotFound: The file does not exist.
        Refused: The file lacks required values.
    """
    try:
        text = (file or files("streamtable_cli") / "measured.json").read_text()
        return Measured(**json.loads(text))
    except OSError as error:
        raise NotFound(f"{file} cannot be read: {error}") from error
    except (ValueError, TypeError) as error:
        raise Refused(f"{file} does not have the expected measurements: {error}") from error


def figures(load: Workload, found: Estimate) -> list[Sequence[str]]:
    """Return the resources for the load, each figure with its source."""
    costs = (
        f"{found.record_us:.1f} µs per record: {found.changed:.0%} are the first of their row in a commit, "
        f"{found.loaded:.0%} load it from disk"
    )
    kept = f"{size(found.input_gb)} of inputs, {size(found.changelog_gb)} of changelog"
    kept += f", {count(load.replicas, 'replica')}"
    share = f"{PLANNED_SHARE:.0%} of the {found.process_records_s:,.0f} records/s that one can handle"
    rows = [
        ("processes", f"{found.processes:,}", f"{share}, and one that may be down"),
        ("processors", f"{found.cores:,.1f}", costs),
        ("memory", size(found.memory_gb), "512 MB for each process, the maximum"),
        ("disk of each process", size(found.process_gb), f"of the table's {size(found.table_gb)}"),
        (
            "disk of all views",
            size(found.table_gb * load.views),
            f"{load.views} with a copy of the whole table",
        ),
        ("changelog", f"{found.changelog_records_s:,.0f} rows/s", f"{found.changelog_mb_s:,.2f} MB/s"),
        ("Kafka's disk", size(found.changelog_gb + found.input_gb), kept),
        (
            "Kafka's network",
            f"{found.brokers_in_mb_s + found.brokers_out_mb_s:,.1f} MB/s",
            f"{found.brokers_in_mb_s:,.1f} in, replicas included, and {found.brokers_out_mb_s:,.1f} out",
        ),
    ]
    if found.kafka_cores is not None:
        rows.append(
            ("Kafka's processors", f"{found.kafka_cores:,.1f}", "of the leaders; replication is extra")
        )
    rows += [
        ("recovery, disk lost", duration(found.cold_s), "45 s session timeout, restore, catch up"),
        ("recovery, standby", duration(found.warm_s), "45 s session timeout, catch up"),
    ]
    return list(rows)


def limits(found: Estimate) -> list[Sequence[str]]:
    """Return the nearest limits; the one that is reached first comes first."""
    return [(each.name, f"{each.used:.0%}", each.fact, each.change) for each in found.limits[:SHOWN]]


def size(gigabytes: float) -> str:
    """Return a size in the largest unit that makes it at least 1, else in MB."""
    if gigabytes >= TERABYTE_GB:
        return f"{gigabytes / TERABYTE_GB:,.1f} TB"
    return f"{gigabytes:,.1f} GB" if gigabytes >= 1 else f"{gigabytes * 1e3:,.1f} MB"
