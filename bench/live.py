"""Rows about a steady load: memory, and the latency until a click is visible."""

from dataclasses import replace

from bench.figures import Figure
from bench.job import Job
from bench.measure import RowFailed
from bench.site import Site

KEYS = 100_000
MEMORY_RATE = 10_000
LATENCY_RATE = 1_000
WRITE_RATE = 500


def memory(site: Site) -> list[Figure]:
    """Measure a processor's peak resident memory at 10,000 records per second."""
    job = _job(site, "memory_10k", MEMORY_RATE)
    with site.start("processor", job, "memory_10k") as processor:
        with site.start("emit", job, "memory_10k-emit") as emitter:
            sent = emitter.mark("last").time - emitter.mark("first").time
            emitter.end()
        site.wait_committed(processor, job)
        used = processor.now()
        processor.stop()
    rate = job.records / sent
    site.forget(job.group)
    site.delete(job.topic)
    if rate < 0.9 * MEMORY_RATE:
        raise RowFailed(f"the load reached only {rate:.0f} records/s")
    return [
        Figure(
            "memory_10k",
            processor.rss_mb,
            "MB",
            cpu_seconds=used.cpu,
            rss_mb=processor.rss_mb,
            records=job.records,
        )
    ]


def latency(site: Site) -> list[Figure]:
    """Measure the milliseconds from a click's emission to its count in a view, at 1,000 per second, 200 ms between commits."""
    return _seen(site, "latency", LATENCY_RATE)


def own_write(site: Site) -> list[Figure]:
    """Measure the milliseconds from a click's emission until a view shows it to its writer, with 500 writers per second."""
    return _seen(site, "own_write", WRITE_RATE)


def _seen(site: Site, name: str, rate: int) -> list[Figure]:
    """Return the result of the program of this name, run beside a processor."""
    job = _job(site, name, rate)
    view = replace(job, state_dir=str(site.state(f"{job.group}-view")))
    with site.start("processor", job, f"{name}-processor") as processor:
        with site.start(name, view, name) as program:
            found = program.result()
            program.end()
        processor.stop()
    site.wipe(f"{job.group}-view")
    site.forget(job.group)
    site.delete(job.topic)
    return [
        Figure(f"{name}_{each}", found[each], "ms", rss_mb=processor.rss_mb, records=job.records)
        for each in ("p50", "p99")
    ]


def _job(site: Site, name: str, rate: int) -> Job:
    topic = f"live-{name}"
    site.create([topic], 4)
    group = site.group(name)
    records = int(rate * site.sizes.live_seconds)
    return Job(
        site.broker, topic, group, records, str(site.state(group)), until="signal", rate=rate, keys=KEYS
    )
