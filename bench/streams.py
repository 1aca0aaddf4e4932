"""Rows about reading a full topic: the bare consumer, the hand-written loop, processors."""

import struct
from collections.abc import Callable
from dataclasses import replace

from bench.clicks import Clicks, users
from bench.figures import Figure, middle
from bench.job import Job
from bench.measure import Mark, Program
from bench.site import Site

from streamtable import Avro

RATE = "records/s"
_NUMBER = struct.Struct(">q")


def number(value: bytes) -> int:
    """Decode a count of the hand-written loop."""
    return int(_NUMBER.unpack(value)[0])


def uniform(site: Site, *, handler: bool = False) -> Clicks:
    """Return the clicks of most rows."""
    return Clicks(site.sizes.handler if handler else site.sizes.stream)


def ceiling(site: Site, name: str, clicks: Clicks, program: str = "ceiling") -> list[Figure]:
    """Measure a program that drops what it reads, from the first batch to the last; return the median of several tries."""
    tries = []
    for _ in range(site.sizes.tries):
        group = site.group(name, clicks.partitions)
        job = Job(site.broker, site.clicks(clicks), group, clicks.records, partitions=clicks.partitions)
        with site.start(program, job, name) as started:
            first, last = started.mark("first"), started.mark("last")
            started.end()
        tries.append(rate(name, clicks.records, first, last, started))
        site.forget(group)
    return [middle(tries)]


def plain_loop(site: Site, name: str, clicks: Clicks) -> list[Figure]:
    """Measure from the first batch until all records are committed."""
    job = job_of(site, name, clicks, commit_ms=1000, guarantee="at_least_once")
    return [worked_off(site, name, "plain_loop", job, f"{job.group}-changelog", number)]


def processor(
    site: Site,
    name: str,
    clicks: Clicks,
    *,
    handler: str = "count",
    guarantee: str = "exactly_once",
    commit_ms: int = 200,
    native: str = "auto",
) -> list[Figure]:
    """Measure from the first batch until all records are committed."""
    job = job_of(site, name, clicks, commit_ms=commit_ms, guarantee=guarantee)
    job = replace(job, handler=handler, native=native)
    return [worked_off(site, name, "processor", job, f"{job.group}-table", Avro("long").decode)]


def both_paths(site: Site, python: str, native: str, clicks: Clicks) -> list[Figure]:
    """Count alternately with the inner loops in Python and in C."""
    return by_turns(
        site,
        lambda: processor(site, python, clicks, commit_ms=1000, native="off"),
        lambda: processor(site, native, clicks, commit_ms=1000, native="required"),
    )


def once(site: Site, plain: str, name: str, clicks: Clicks) -> list[Figure]:
    """Count clicks with ids, alternately without and with deduplication."""

    def count_once() -> list[Figure]:
        job = job_of(site, name, clicks, commit_ms=1000, guarantee="exactly_once")
        job = replace(job, handler="count_once")
        site.create([f"{job.group}-ids"], job.partitions, {"cleanup.policy": "compact"})
        return [worked_off(site, name, "processor", job, f"{job.group}-table", Avro("long").decode)]

    return by_turns(site, lambda: processor(site, plain, clicks, commit_ms=1000), count_once)


def joined(site: Site, name: str, clicks: Clicks) -> list[Figure]:
    """Measure like `processor`, with a row of another group's table and an output for each record."""
    job = job_of(site, name, clicks, commit_ms=200, guarantee="exactly_once")
    job = replace(job, handler="join", table=site.table(clicks.keys))
    outputs = f"{job.group}-out"
    site.create([outputs], job.partitions)
    return [worked_off(site, name, "processor", job, outputs, Avro("long").decode)]


def windowed(site: Site, plain: str, name: str, clicks: Clicks) -> list[Figure]:
    """Count alternately by user, and by user and minute."""

    def by_window() -> list[Figure]:
        job = replace(job_of(site, name, clicks, commit_ms=1000, guarantee="exactly_once"), handler="window")
        tables = [f"{job.group}-counts", f"{job.group}-states"]
        site.create(tables, job.partitions, {"cleanup.policy": "compact"})
        return [worked_off(site, name, "processor", job, tables[0], number)]

    return by_turns(site, lambda: processor(site, plain, clicks, commit_ms=1000), by_window)


def stateless(site: Site, name: str, clicks: Clicks) -> list[Figure]:
    """Measure a flow that filters, maps and writes, from the first batch until all is committed."""
    job = replace(job_of(site, name, clicks, commit_ms=1000, guarantee="exactly_once"), handler="steps")
    outputs = f"{job.group}-out"
    site.create([outputs], job.partitions)
    with site.start("processor", job, name) as program:
        first = program.mark("first")
        program.mark("last")
        committed = site.wait_committed(program, job)
        program.end()
    site.check_written(outputs, job, sum(user % 2 == 0 for chunk in users(clicks) for user in chunk))
    site.forget(job.group)
    return [rate(name, job.records, first, committed, program)]


def looked_up(site: Site, name: str, clicks: Clicks) -> list[Figure]:
    """Measure like `processor`, with a row of a full replica of a table for each record."""
    job = job_of(site, name, clicks, commit_ms=200, guarantee="exactly_once")
    job = replace(job, handler="lookup", table=site.table(clicks.keys))
    return [worked_off(site, name, "processor", job, f"{job.group}-table", Avro("long").decode)]


def failing(site: Site, name: str, clicks: Clicks, percent: int) -> list[Figure]:
    """Measure like `processor`, with a handler that fails for this percentage of the records, which become dead letters."""
    job = job_of(site, name, clicks, commit_ms=200, guarantee="exactly_once")
    job = replace(job, handler=f"failing_{percent}", until="signal")
    with site.start("processor", job, name) as program:
        first = program.mark("first")
        committed = site.wait_committed(program, job)
        program.stop()
    site.check_counted_or_set_aside(job, Avro("long").decode)
    site.forget(job.group)
    return [rate(name, job.records, first, committed, program)]


def tried(measure: Callable[[], list[Figure]], tries: int) -> list[Figure]:
    """Return the median try of a row that is measured several times."""
    return [middle([figure for _ in range(tries) for figure in measure()])]


def by_turns(site: Site, one: Callable[[], list[Figure]], other: Callable[[], list[Figure]]) -> list[Figure]:
    """Return the median tries of two rows that are measured alternately, as the machine's speed varies."""
    pairs = [(one(), other()) for _ in range(site.sizes.tries)]
    return [
        middle([figure for figures, _ in pairs for figure in figures]),
        middle([figure for _, figures in pairs for figure in figures]),
    ]


def with_memory(name: str, figures: list[Figure]) -> list[Figure]:
    """Return the peak resident memory as a row."""
    return [*figures, *(Figure(name, each.rss_mb, "MB") for each in figures)]


def also_called(name: str, figures: list[Figure]) -> list[Figure]:
    """A measurement that is the baseline of two comparisons."""
    return [*figures, *(replace(each, name=name) for each in figures)]


def worked_off(
    site: Site, name: str, module: str, job: Job, changelog: str, decode: Callable[[bytes], int]
) -> Figure:
    """Run a program over the job's records, check its counts, and delete all it wrote."""
    with site.start(module, job, name) as program:
        first = program.mark("first")
        program.mark("last")
        committed = site.wait_committed(program, job)
        program.end()
    site.check_counts(changelog, job, decode)
    site.forget(job.group)
    return rate(name, job.records, first, committed, program)


def rate(name: str, records: int, first: Mark, last: Mark, program: Program) -> Figure:
    """Return the records per second between two moments."""
    return Figure(
        name,
        records / (last.time - first.time),
        RATE,
        cpu_seconds=last.cpu - first.cpu,
        rss_mb=program.rss_mb,
        records=records,
    )


def job_of(site: Site, name: str, clicks: Clicks, *, commit_ms: int, guarantee: str) -> Job:
    """Return the job of a new group over these clicks."""
    topic = site.clicks(clicks)
    group = site.group(name, clicks.partitions)
    return Job(
        site.broker,
        topic,
        group,
        clicks.records,
        str(site.state(group)),
        partitions=clicks.partitions,
        guarantee=guarantee,
        commit_ms=commit_ms,
    )
