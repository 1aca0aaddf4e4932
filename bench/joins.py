"""Rows about joins of two topics of clicks: of streams, of tables by their keys, and by a foreign key."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bench.clicks import Clicks, ids, users
from bench.figures import Figure, middle
from bench.job import Job
from bench.measure import Mark, Program, RowFailed
from bench.programs.joins import GROUP_LENGTH, JOINS, flow_of_job
from bench.site import Site
from bench.streams import rate
from bench.windows import OPEN

from streamtable import App, Kafka

ROWS = tuple(JOINS)
_GROUPS = 1_000  # the users that are foreign keys of clicks: those with at most three digits


@dataclass(frozen=True)
class Sides:
    """The two sides of a join.

    Attributes:
        left: The clicks of the left topic.
        right: The clicks of the right topic, each with an id of its own.
    """

    left: Clicks
    right: Clicks

    @property
    def records(self) -> int:
        return self.left.records + self.right.records


def sides(site: Site, row: str) -> Sides:
    """Return the clicks of a row: equally many on both sides, except for the few users of a foreign key."""
    half = site.sizes.handler // 2
    left = Clicks(half, half)
    if row == "foreign_key_join":
        return Sides(left, Clicks(_GROUPS, _GROUPS, once=True, ids=True))
    return Sides(left, Clicks(half, half, ids=True))


def job_of(site: Site, name: str, row: str, both: Sides) -> Job:
    """Fill the topics and return the job of a new group that joins these clicks."""
    group = site.name(name)
    return Job(
        site.broker,
        site.clicks(both.left),
        group,
        both.records,
        str(site.state(group)),
        commit_ms=1000,
        handler=row,
        second=site.clicks(both.right),
        until="signal",
    )


def joined(site: Site, row: str) -> list[Figure]:
    """Measure from the first batch until all is committed, including the internal topics of the flow."""
    return [middle([_joined(site, row, sides(site, row)) for _ in range(site.sizes.tries)])]


def waiting(site: Site, name: str) -> list[Figure]:
    """Measure the peak resident memory of a stream join where all records of one side wait and few match."""
    keys = OPEN * site.sizes.keys
    both = Sides(Clicks(keys, keys, once=True), Clicks(_GROUPS, _GROUPS, once=True, ids=True))
    figure = _joined(site, "stream_join", both)
    site.delete(both.left.topic)
    return [replace(figure, name=name, value=figure.rss_mb, unit="MB")]


def _joined(site: Site, row: str, both: Sides) -> Figure:
    job = job_of(site, row, row, both)
    flow = flow_of_job(job)
    App(Kafka(site.broker), job.state_dir).create_topics(flow, partitions=job.partitions)
    reads = {group.name: [edge.stream.name for edge in group.inputs] for group in flow.groups}
    with site.start("joins", job, row) as program:
        first = program.mark("first")
        last = worked_off(site, program, job, reads)
        program.stop()
    check(site, job, both)
    site.forget(job.group)
    return rate(row, job.records, first, last, program)


def worked_off(site: Site, program: Program, job: Job, reads: Mapping[str, Sequence[str]]) -> Mark:
    """Wait until all groups have committed their inputs: first the clicks, then the internal topics.

    Args:
        site: The site of the program.
        program: The program.
        job: The job of the program.
        reads: The topics that each group reads.
    """
    clicks = {job.topic, job.second}

    def done(*, between: bool) -> bool:
        return not any(
            site.behind(group, [topic], int(between), job.partitions)
            for group, topics in reads.items()
            for topic in topics
            if (topic not in clicks) is between
        )

    program.wait(lambda: done(between=False), f"has not committed all {job.records} records")
    # Records between the groups are committed together with their causes, so a second look at all topics sees the
    # records that the first look's last commit caused.
    program.wait(lambda: done(between=True) and done(between=True), "has not handled its internal records")
    return program.now()


def check(site: Site, job: Job, both: Sides) -> None:
    """Raise `RowFailed` unless the output is the join of the clicks."""
    output = f"{job.group}-out"
    if job.handler == "stream_join":
        site.check_written(output, job, _pairs(both))
        return
    expected = _EXPECTED[job.handler](both)
    found = {key: value for key, value in site.last_values(output, job.partitions).items() if value}
    if found != expected:
        wrong = sum(found.get(key) != value for key, value in expected.items())
        raise RowFailed(
            f"wrong: {output} has {len(found)} rows, not {len(expected)}; {wrong} are missing or differ"
        )


def _pairs(both: Sides) -> int:
    left, right = (
        Counter(user for chunk in users(clicks) for user in chunk) for clicks in (both.left, both.right)
    )
    return sum(count * right[user] for user, count in left.items())


def _last_ids(clicks: Clicks) -> dict[int, bytes]:
    """Return the id of each user's last click."""
    own = ids()
    return {user: next(own) for chunk in users(clicks) for user in chunk}


def _of_tables(both: Sides) -> dict[bytes, bytes]:
    right = _last_ids(both.right)
    there = {user for chunk in users(both.left) for user in chunk}
    return {b"user-%d" % user: right[user] for user in there & right.keys()}


def _of_foreign_keys(both: Sides) -> dict[bytes, bytes]:
    right = {b"user-%d" % user: each for user, each in _last_ids(both.right).items()}
    there = {b"user-%d" % user for chunk in users(both.left) for user in chunk}
    return {user: right[named] for user in there if (named := user[:GROUP_LENGTH]) in right}


_EXPECTED: Mapping[str, Callable[[Sides], dict[bytes, bytes]]] = {
    "table_join": _of_tables,
    "foreign_key_join": _of_foreign_keys,
}
