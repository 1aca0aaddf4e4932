"""Rows about typed JSON: orders that are counted by a function, with our `Typed`, Quix Streams' JSON, and records of Faust."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from bench import streams
from bench.figures import Figure
from bench.job import Job
from bench.measure import Program
from bench.orders import PARTITIONS, orders
from bench.peers.rows import BUILD, HERE, SIGTERM_CODES, Peer, build
from bench.plan import Step
from bench.site import Site

from streamtable import Avro

ROW: Final = "typed_orders"
_FAUST: Final = BUILD / "faust"
_SHARE: Final = 0.4


@dataclass(frozen=True)
class Typed:
    """A library's program that counts orders.

    Attributes:
        peer: What builds and runs it.
        share: The share of a full topic's records, so that it runs about as long as ours.
    """

    peer: Peer
    share: float

    @property
    def name(self) -> str:
        return f"peer_{self.peer.name}_{ROW}"


def faust() -> Peer:
    """Return Faust, which has no other program here."""
    pip = [str(_FAUST / "bin" / "pip"), "install", "--quiet", "--require-hashes", "-r", "requirements.txt"]
    return Peer(
        "faust",
        (),
        [(HERE, [sys.executable, "-m", "venv", str(_FAUST)]), (HERE / "faust", pip)],
        [str(_FAUST / "bin" / "python"), str(HERE / "faust" / "main.py")],
        "{group}-counts-changelog",
        json.loads,
        0.02,
    )


def beside(chosen: Sequence[Peer]) -> list[Typed]:
    """Return the programs beside ours. `chosen`: the peers that can be built."""
    quix = [
        Typed(replace(each, command=[*each.command[:-1], str(HERE / each.name / "typed.py")]), 0.05)
        for each in chosen
        if each.name == "quix_streams"
    ]
    return [*quix, Typed(faust(), 0.03)] if quix else []


def baselines(chosen: Sequence[Peer]) -> dict[str, str]:
    """Return the rows of the peers, each with ours."""
    return {each.name: ROW for each in beside(chosen)}


def steps(chosen: Sequence[Peer]) -> list[Step]:
    """Return the step of our program and of the peers' after it; none without a peer."""
    others = beside(chosen)
    ours = [Step((ROW,), _ours)] if others else []
    return [*ours, *(Step((each.name,), partial(measure, typed=each)) for each in others)]


def _ours(site: Site) -> list[Figure]:
    group = site.group(ROW, PARTITIONS)
    job = replace(_job(site, group, _SHARE), handler="typed")
    return [streams.worked_off(site, ROW, "processor", job, f"{group}-table", Avro("long").decode)]


def measure(site: Site, typed: Typed) -> list[Figure]:
    """Measure from the first record until all are committed, with a second between commits."""
    build(typed.peer)
    group = site.name(typed.name)
    job = _job(site, group, typed.share)
    with Program(typed.peer.command, job.environment(), site.log(typed.name)) as program:
        first = program.mark("first")
        program.mark("last")
        program.ask_to_stop(SIGTERM_CODES)  # see `rows.measure`
        committed = site.wait_committed(program, job)
        program.end()
    changelog = typed.peer.changelog.format(group=group, topic=job.topic)
    site.check_counts(changelog, job, typed.peer.decode)
    site.wipe(group)
    site.delete(f"{group}-", changelog)
    return [replace(streams.rate(typed.name, job.records, first, committed, program), baseline=ROW)]


def _job(site: Site, group: str, share: float) -> Job:
    records = int(site.sizes.stream * share)
    topic = orders(site, records)
    return Job(
        site.broker, topic, group, records, str(site.state(group)), partitions=PARTITIONS, commit_ms=1000
    )
