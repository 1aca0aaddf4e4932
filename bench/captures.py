"""Rows about captured tables, beside a handler that sets the row of each envelope as it is."""

from collections.abc import Callable

import msgspec
from bench import streams
from bench.envelopes import Envelopes, fill
from bench.figures import Figure
from bench.job import Job
from bench.measure import RowFailed
from bench.site import Site

PARTITIONS = 4
ROWS = ("envelopes_by_handler", "capture")
_HANDLERS = dict(zip(ROWS, ("envelope", "capture"), strict=True))
_INNER = ("loop", "deleted", "moves", "states")
"""The further topics of a `Capture`."""


class _Row(msgspec.Struct):
    amount: int


def capture(site: Site) -> list[Figure]:
    """Measure both by turns, from the first batch until all is committed; the medians of several tries."""
    envelopes = envelopes_of(site)

    def one(row: str) -> Callable[[], list[Figure]]:
        return lambda: [_captured(site, row, envelopes)]

    return streams.by_turns(site, *map(one, ROWS))


def envelopes_of(site: Site) -> Envelopes:
    """Return the changes of all rows here, in a topic that is filled on first use."""
    envelopes = Envelopes(site.sizes.handler, min(100_000, site.sizes.handler // 3))
    site.fill(envelopes.topic, envelopes.records, PARTITIONS, lambda: fill(site.broker, envelopes))
    return envelopes


def job_of(site: Site, name: str, envelopes: Envelopes) -> Job:
    """Return the job of a new group over these changes."""
    group = site.group(name, PARTITIONS)
    site.create([f"{group}-{each}" for each in _INNER], PARTITIONS, {"cleanup.policy": "compact"})
    return Job(
        site.broker,
        envelopes.topic,
        group,
        envelopes.records,
        str(site.state(group)),
        partitions=PARTITIONS,
        commit_ms=1000,
        handler=_HANDLERS.get(name, ""),
    )


def check(site: Site, table: str, envelopes: Envelopes) -> None:
    """Raise `RowFailed` unless a table has the rows of the last changes."""
    rows = [msgspec.json.decode(row, type=_Row) for row in site.last_values(table, PARTITIONS).values()]
    found, expected = sum(row.amount for row in rows), envelopes.amounts()
    if len(rows) != envelopes.keys or found != expected:
        raise RowFailed(
            f"wrong: {table} has {len(rows)} rows with the amount {found}, not {envelopes.keys} with {expected}"
        )


def _captured(site: Site, row: str, envelopes: Envelopes) -> Figure:
    job = job_of(site, row, envelopes)
    with site.start("captures", job, row) as program:
        first = program.mark("first")
        program.mark("last")
        committed = site.wait_committed(program, job)
        program.end()
    check(site, f"{job.group}-table", envelopes)
    site.forget(job.group)
    return streams.rate(row, job.records, first, committed, program)
