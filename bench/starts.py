"""Rows about the start: a table restored to an empty disk, a restart, the first record of a new group."""

from dataclasses import replace

from bench.clicks import Clicks
from bench.figures import Figure, middle
from bench.job import Job
from bench.measure import RowFailed
from bench.site import Site
from bench.streams import RATE

from streamtable import Avro
from streamtable.store.rocksdb import RocksStores


def restore(site: Site) -> list[Figure]:
    """Measure from the first changelog record until the processor is ready; then restarts with nothing to restore."""
    job = counted(site, site.sizes.keys)
    job = replace(job, until="ready")
    restored = middle([_restored(site, job) for _ in range(site.sizes.tries)])
    figures = [restored, middle([_restart(site, job) for _ in range(site.sizes.tries)])]
    site.forget(job.group)
    site.delete(job.topic)
    return figures


def first_record(site: Site) -> list[Figure]:
    """Measure from the start of the process to the first record handled, by a new group with an empty disk."""
    return [middle([_first_record(site) for _ in range(site.sizes.tries)])]


def counted(site: Site, keys: int, handler: str = "count") -> Job:
    """Return the job of a group whose table has this many rows, with one changelog record for each."""
    topic, group = site.clicks(Clicks(keys, keys, once=True)), site.group("restore")
    job = Job(site.broker, topic, group, keys, str(site.state(group)), handler=handler)
    with site.start("processor", job, "restore-counted") as program:
        program.mark("last")
        site.wait_committed(program, job)
        program.end()
    site.check_counts(f"{group}-table", job, Avro("long").decode)
    return job


def _restored(site: Site, job: Job) -> Figure:
    site.wipe(job.group)
    job = replace(job, state_dir=str(site.state(job.group)))
    with site.start("processor", job, "restore") as program:
        first, ready = program.mark("restoring"), program.mark("ready")
        program.end()
    rows = _rows(site, job)
    if rows != job.records:
        raise RowFailed(f"wrong: {rows} rows are restored, not {job.records}")
    return Figure(
        "restore",
        job.records / (ready.time - first.time),
        RATE,
        cpu_seconds=ready.cpu - first.cpu,
        rss_mb=program.rss_mb,
        records=job.records,
    )


def _rows(site: Site, job: Job) -> int:
    stores = RocksStores(site.state(job.group) / job.group, memory_bytes=64 << 20)
    rows = 0
    try:
        for partition in range(job.partitions):
            with stores.open(f"{job.group}-table", partition).scan() as found:
                rows += sum(1 for _ in found)
    finally:
        stores.close()
    return rows


def _restart(site: Site, job: Job) -> Figure:
    with site.start("processor", job, "restart_ready") as program:
        began, ready = program.started, program.mark("ready")
        program.end()
    if "restoring" in program.marks:
        raise RowFailed("there were records to restore after a graceful shutdown")
    return Figure("restart_ready", ready.time - began, "s", cpu_seconds=ready.cpu, rss_mb=program.rss_mb)


def _first_record(site: Site) -> Figure:
    clicks = Clicks(site.sizes.stream)
    topic, group = site.clicks(clicks), site.group("first")
    job = Job(site.broker, topic, group, clicks.records, str(site.state(group)), until="handled")
    with site.start("processor", job, "first_record") as program:
        began, handled = program.started, program.mark("handled")
        program.end()
    site.forget(group)
    return Figure(
        "first_record",
        handled.time - began,
        "s",
        cpu_seconds=handled.cpu,
        rss_mb=program.rss_mb,
    )
