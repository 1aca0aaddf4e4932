"""Rows about failover: the time until another process handles the first record of a partition of a killed process.

The group detects a failure when the session times out; that time is counted separately.
"""

from dataclasses import replace

from bench.clicks import click
from bench.figures import Figure, middle
from bench.job import Job
from bench.measure import Program
from bench.programs.processor import clicks as stream_of
from bench.site import Site, until
from bench.starts import counted
from confluent_kafka.admin import AdminClient

from streamtable import Emitter, Kafka

_LOOK_SECONDS = 5.0
_USERS = 64  # enough for every partition to get some of their clicks


def failover(site: Site) -> list[Figure]:
    """Kill the owner of half of a large table, with standby replicas and without."""
    # By a function, as in the processes below: a table is refused to a program whose rows have another meaning.
    job = counted(site, site.sizes.keys, "record")
    job = replace(job, until="killed")
    figures = [
        middle([_taken_over(site, job, name, number) for number in range(tries)])
        for name, tries in (("failover_warm", site.sizes.tries), ("failover_cold", 1))
    ]
    site.forget(job.group)
    site.delete(job.topic)
    return figures


def _taken_over(site: Site, job: Job, name: str, number: int) -> Figure:
    warm = name == "failover_warm"
    heirs = site.state(job.group) / f"{name}-{number}"
    owner = replace(job, instance="owner", standby=int(warm), clients=2)
    heir = replace(owner, instance=f"heir-{number}", state_dir=str(heirs))
    with (
        site.start("processor", owner, f"{name}-owner") as first,
        site.start("processor", heir, name) as second,
    ):
        first.mark("shared")
        second.mark("shared")
        before = second.now()
        first.kill()
        _emit(site, job)
        noticed = _noticed(site, job, second)
        second.wait(lambda: _inherited(second, noticed), "has not handled the partitions of the dead process")
        began = _inherited(second, noticed)
        assert began is not None
        spent = second.now().cpu - before.cpu
        second.stop()
    return Figure(name, began - noticed, "s", cpu_seconds=spent, rss_mb=second.rss_mb)


def _emit(site: Site, job: Job) -> None:
    with Emitter(stream_of(job.topic), Kafka(site.broker)) as emitter:
        for number in range(_USERS):
            emitter.emit(f"user-{number}", click(f"user-{number}"))


def _noticed(site: Site, job: Job, heir: Program) -> float:
    """Return the time, in seconds since 1970, when the group has one member left."""
    admin = AdminClient({"bootstrap.servers": site.broker, "log_level": 0})

    def alone() -> bool:
        found = admin.describe_consumer_groups([job.group])[job.group].result(_LOOK_SECONDS)
        return len(found.members) == 1

    until(alone, "the group has removed the dead member")
    return heir.now().time


def _inherited(heir: Program, noticed: float) -> float | None:
    """Return the time of the first record handled after that moment; its own partitions' records are earlier."""
    later = [
        mark.time for name, mark in heir.marks.items() if name.startswith("handled_") and mark.time > noticed
    ]
    return min(later, default=None)
