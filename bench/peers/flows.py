"""Rows about windows, a repartition and joins in other libraries: the same programs beside our flows."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bench import joins, streams, windows
from bench.clicks import Clicks
from bench.figures import Figure
from bench.job import Job
from bench.measure import Mark, Program
from bench.peers.rows import SCHEMA, SIGTERM_CODES, Peer, build
from bench.plan import Step
from bench.site import Site

_TIMES_FROM_MS = 1_000_000_000_000  # in 2001; counts are lower
_BETWEEN: Mapping[str, Sequence[str]] = {
    "repartition_count": ("by-user-repartition",),
    "foreign_key_join": ("named-subscription-registration-topic", "named-subscription-response-topic"),
}
"""The internal topics of Kafka Streams by row: the suffixes of their names."""


@dataclass(frozen=True)
class Beside:
    """A program of another library beside a row of ours.

    Attributes:
        row: Our row.
        peer: The name of the library's `Peer`.
        command: The end of its command that chooses the program; empty: it is the same.
        changelog: The name of the changelog whose counts are checked, with {group} and {topic}; empty for joins.
        count: A count in there; 0 for a row that is none.
        share: The share of our row's records, so that both run about equally long.
    """

    row: str
    peer: str
    command: str = ""
    changelog: str = "{group}-counts-changelog"
    count: Callable[[bytes], int] = windows.number_or_none
    share: float = 1.0

    @property
    def name(self) -> str:
        return f"peer_{self.peer}_{self.row}"


def quix_session(value: bytes) -> int:
    """Decode a count; 0 for a session that was merged into another, and for timestamps in the same topic."""
    found = int(json.loads(value)) if value else 0
    return found if found < _TIMES_FROM_MS else 0


BESIDE = (
    *(
        Beside(row, "kafka_streams", "Flows")
        for row in ("window_count", "session_count", "repartition_count")
    ),
    *(Beside(row, "kafka_streams", "Flows", changelog="") for row in joins.ROWS),
    Beside(
        "session_count",
        "quix_streams",
        changelog="changelog__{group}--{topic}--session_window_60000_count",
        count=quix_session,
        share=0.1,
    ),
)


def steps(chosen: Sequence[Peer]) -> list[Step]:
    """Our flows, each followed by the programs of these peers."""
    ours = (
        Step(
            ("count_of_windows", "window_count"),
            lambda site: streams.windowed(site, "count_of_windows", "window_count", streams.uniform(site)),
        ),
        Step(("session_count",), lambda site: windows.sessions(site, "session_count")),
        Step(("repartition_count",), lambda site: windows.repartitioned(site, "repartition_count")),
        *(Step((row,), partial(joins.joined, row=row)) for row in joins.ROWS),
    )
    return [step for each in ours for step in (each, *_beside(each.rows, chosen))]


def _beside(rows: Collection[str], chosen: Sequence[Peer]) -> list[Step]:
    return [
        Step((each.name,), partial(measure, peer=peer, beside=each))
        for peer in chosen
        for each in BESIDE
        if each.peer == peer.name and each.row in rows
    ]


def measure(site: Site, peer: Peer, beside: Beside) -> list[Figure]:
    """Measure from the first record until all is committed, including internal topics; with a second between commits."""
    build(peer)
    job = replace(_job(site, beside), schema=str(SCHEMA))
    command = [*peer.command[:-1], beside.command] if beside.command else peer.command
    with Program(command, job.environment(), site.log(beside.name)) as program:
        first = program.mark("first")
        program.mark("last")
        last = _worked_off(site, program, job, beside.row)
        program.end()
    changelog = beside.changelog.format(group=job.group, topic=job.topic)
    if changelog:
        site.check_counts(changelog, job, beside.count)
    else:
        joins.check(site, job, joins.sides(site, beside.row))
    site.wipe(job.group)
    site.delete(f"{job.group}-", *([changelog] if changelog else []))
    figure = streams.rate(beside.name, job.records, first, last, program)
    return [replace(figure, baseline=beside.row)]


def _job(site: Site, beside: Beside) -> Job:
    if beside.row in joins.ROWS:
        job = joins.job_of(site, beside.name, beside.row, joins.sides(site, beside.row))
        site.create([f"{job.group}-out"], job.partitions)
        return job
    clicks = Clicks(int(site.sizes.stream * beside.share))
    topic, group = site.clicks(clicks), site.name(beside.name)
    state = str(site.state(group))
    return Job(site.broker, topic, group, clicks.records, state, commit_ms=1000, handler=beside.row)


def _worked_off(site: Site, program: Program, job: Job, row: str) -> Mark:
    if row in joins.ROWS or row in _BETWEEN:
        between = [f"{job.group}-{topic}" for topic in _BETWEEN.get(row, ())]
        inputs = [topic for topic in (job.topic, job.second) if topic]
        last = joins.worked_off(site, program, job, {job.group: [*inputs, *between]})
        program.ask_to_stop(SIGTERM_CODES)
        return last
    # As with our own program, which stops at the last record: the rest is committed at its end.
    program.ask_to_stop(SIGTERM_CODES)
    return site.wait_committed(program, job)
