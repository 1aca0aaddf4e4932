"""The row about a captured table beside Kafka Streams: a KTable of the same changes, which merges values in the same way."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from bench import captures, streams
from bench.figures import Figure
from bench.measure import Program
from bench.peers.rows import SIGTERM_CODES, Peer, build
from bench.plan import Step
from bench.site import Site

BASELINE = "capture"
ROW = "peer_kafka_streams_capture"
_PEER, _PROGRAM = "kafka_streams", "Captured"


def steps(chosen: Sequence[Peer]) -> list[Step]:
    """Our row, followed by the same of Kafka Streams, if that is one of these peers."""
    beside = [Step((ROW,), partial(measure, peer=peer)) for peer in chosen if peer.name == _PEER]
    return [Step(captures.ROWS, captures.capture), *beside]


def measure(site: Site, peer: Peer) -> list[Figure]:
    """Measure from the first record until all are committed, with a second between commits."""
    build(peer)
    envelopes = captures.envelopes_of(site)
    job = captures.job_of(site, ROW, envelopes)
    with Program([*peer.command[:-1], _PROGRAM], job.environment(), site.log(ROW)) as program:
        first = program.mark("first")
        program.mark("last")
        program.ask_to_stop(SIGTERM_CODES)
        committed = site.wait_committed(program, job)
        program.end()
    captures.check(site, f"{job.group}-rows-changelog", envelopes)
    site.forget(job.group)
    figure = streams.rate(ROW, job.records, first, committed, program)
    return [replace(figure, baseline=BASELINE)]
