"""Rows about several processes of one group, with Kafka on the same machine: they share its cores."""

from contextlib import ExitStack
from dataclasses import replace

from bench import family
from bench.clicks import Clicks, fill_unseen
from bench.figures import Figure
from bench.job import Job
from bench.measure import Program, RowFailed
from bench.site import Site
from bench.streams import RATE

from streamtable import Avro

PARTITIONS = 12


def one(site: Site) -> list[Figure]:
    """Measure one process; and the broker's CPU per record that it delivers, including the changelog writes."""
    figure, broker_cpu = _counted(site, 1)
    of_record = broker_cpu / site.sizes.stream * 1e6
    return [figure, Figure("kafka_cpu", of_record, "us", records=site.sizes.stream)]


def several(site: Site, *, number: int) -> list[Figure]:
    """Measure several processes: records/s, CPU and memory of all together."""
    return [_counted(site, number)[0]]


def _counted(site: Site, number: int) -> tuple[Figure, float]:
    """Measure from the moment when all clicks become visible until all are committed; partitions are assigned before.

    Returns:
        The figure, and the CPU seconds of the broker meanwhile.
    """
    name = f"count_processes_{number}"
    clicks = Clicks(site.sizes.stream, partitions=PARTITIONS)
    group = site.group(name, PARTITIONS)
    topic = f"{group}-clicks"
    site.create([topic], PARTITIONS)
    job = Job(
        site.broker, topic, group, clicks.records, partitions=PARTITIONS, until="shared", clients=number
    )
    with ExitStack() as opened:
        programs = [
            opened.enter_context(_started(site, job, f"{name}-{instance}")) for instance in range(number)
        ]
        producer = fill_unseen(site.broker, clicks, topic)
        for program in programs:
            program.mark("shared")
        broker, before = _broker_cpu(site), [program.now() for program in programs]
        producer.commit_transaction()
        last = site.wait_committed(programs[0], job)
        after, broker = [program.now() for program in programs], _broker_cpu(site) - broker
        # Transaction markers have offsets too, so by the sum of offsets a last record may still be missing.
        programs[0].wait(
            lambda: not site.behind(group, [topic], 1, PARTITIONS), "has not committed the last records"
        )
        for program in programs:
            program.stop()
    site.check_counts(f"{group}-table", job, Avro("long").decode)
    site.forget(group)
    figure = Figure(
        name,
        clicks.records / (last.time - before[-1].time),
        RATE,
        cpu_seconds=sum(mark.cpu for mark in after) - sum(mark.cpu for mark in before),
        rss_mb=sum(program.rss_mb for program in programs),
        records=clicks.records,
    )
    return figure, broker


def _started(site: Site, job: Job, instance: str) -> Program:
    state = site.state(job.group) / instance
    return site.start("processor", replace(job, instance=instance, state_dir=str(state)), instance)


def _broker_cpu(site: Site) -> float:
    if site.broker_pid is None:
        raise RowFailed("the broker's process is not known")
    return family.processes()[site.broker_pid].cpu
