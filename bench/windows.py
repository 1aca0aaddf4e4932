"""Rows about stateful flows: sessions, a repartition, many open windows, many windows that close at once."""

import time
from dataclasses import replace

from bench.clicks import Clicks, click, filler
from bench.figures import Figure, middle
from bench.job import Job
from bench.measure import Mark
from bench.site import Site
from bench.streams import job_of, number, rate, uniform, worked_off

from contracts.records import USER_CLICK
from streamtable import Avro

_COMPACTED = {"cleanup.policy": "compact"}
_CLOSED_AFTER_MS = 30 * 60_000  # later than the windows of `final`, less than the hour that is accepted
OPEN = 5  # open windows per key of the restored table


def sessions(site: Site, name: str) -> list[Figure]:
    """Count by user and session: each click makes the session of its user longer."""
    return [middle([_sessions(site, name) for _ in range(site.sizes.tries)])]


def _sessions(site: Site, name: str) -> Figure:
    job = _job(site, name, uniform(site), "session")
    return worked_off(site, name, "processor", job, f"{job.group}-counts", number_or_none)


def number_or_none(value: bytes) -> int:
    """Decode a count; 0 for a session that was merged into another."""
    return number(value) if value else 0


def repartitioned(site: Site, name: str) -> list[Figure]:
    """Count by a key from the value: one process repartitions the clicks, another counts them."""
    return [middle([_repartitioned(site, name) for _ in range(site.sizes.tries)])]


def _repartitioned(site: Site, name: str) -> Figure:
    clicks = uniform(site)
    keyed = _job(site, name, clicks, "key_by", tables=())
    through = f"{keyed.group}-by-user"
    site.create([through, f"{through}-dead-letters", f"{through}-retry"], keyed.partitions)
    site.create([f"{through}-counts", f"{through}-states"], keyed.partitions, _COMPACTED)
    counting = replace(
        keyed,
        topic=through,
        group=through,
        handler="key_by_count",
        until="signal",
        state_dir=f"{keyed.state_dir}/count",
    )
    with site.start("processor", counting, f"{name}-count") as counted:
        counted.mark("assigned")
        with site.start("processor", keyed, name) as sent:
            first = sent.mark("first")
            sent.mark("last")
            sent.end()
        counted.wait(
            lambda: not site.behind(through, [through], 1, keyed.partitions), "has not counted all records"
        )
        last, used = counted.now(), sent.now()
        counted.stop()
    site.check_counts(f"{through}-counts", keyed, number)
    site.forget(keyed.group)
    both = Mark(last.time, last.cpu + used.cpu)
    return rate(name, keyed.records, first, both, counted)


def open_windows(site: Site, name: str) -> list[Figure]:
    """Measure the peak resident memory of a count with an open window for each record."""
    keys = OPEN * site.sizes.keys
    clicks = Clicks(keys, keys, once=True)
    job = _job(site, name, clicks, "window")
    figure = worked_off(site, name, "processor", job, f"{job.group}-counts", number)
    site.delete(clicks.topic)
    return [
        Figure(name, figure.rss_mb, "MB", cpu_seconds=figure.cpu_seconds, rss_mb=figure.rss_mb, records=keys)
    ]


def final(site: Site, name: str) -> list[Figure]:
    """Measure the longest time between two polls of a flow with `final` while windows of a million keys close at once."""
    keys = site.sizes.keys
    clicks = Clicks(keys, keys, once=True)
    job = _job(site, name, clicks, "final")
    job = replace(job, records=keys + job.partitions, until="signal")
    output = f"{job.group}-out"
    site.create([output], job.partitions)
    with site.start("processor", job, name) as program:
        site.wait_committed(program, replace(job, records=keys))
        _close_windows(site, job)
        program.wait(lambda: site.held(output, job.partitions) >= keys, "has not written all final rows")
        site.wait_committed(program, job)
        program.stop()
    pause = program.result()["longest_pause_ms"]
    site.check_written(output, job, keys)
    site.forget(job.group)
    site.delete(clicks.topic)
    return [Figure(name, pause, "ms", rss_mb=program.rss_mb, records=keys)]


def _close_windows(site: Site, job: Job) -> None:
    """Write a click to each partition that is so late that the windows of all others are closed."""
    producer, late = filler(site.broker), int(time.time() * 1000) + _CLOSED_AFTER_MS
    value = Avro(USER_CLICK).encode(click("last"))
    for partition in range(job.partitions):
        producer.produce(job.topic, value, b"last-%d" % partition, partition, timestamp=late)
    producer.flush()


def _job(
    site: Site, name: str, clicks: Clicks, handler: str, tables: tuple[str, ...] = ("counts", "states")
) -> Job:
    job = replace(job_of(site, name, clicks, commit_ms=1000, guarantee="exactly_once"), handler=handler)
    if tables:
        site.create([f"{job.group}-{table}" for table in tables], job.partitions, _COMPACTED)
    return job
