"""Rows about other libraries that count clicks: built here if this machine can, then measured like our own programs."""

import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bench import streams
from bench.clicks import Clicks
from bench.figures import Figure
from bench.job import Job
from bench.machine import ROOT
from bench.measure import Program, RowFailed
from bench.plan import Step
from bench.site import Site

from localkafka.jars import COPY_GOAL

HERE = Path(__file__).resolve().parent
BUILD = ROOT / "build" / "peers"
SCHEMA = ROOT / "proto" / "avro" / "user_click.avsc"
BASELINE = "count_exactly_once_1s"
SIGTERM_CODES = (0, 143, -15)


@dataclass(frozen=True)
class Peer:
    """A library beside ours.

    Attributes:
        name: The name of the row, without `peer_`.
        needs: The programs required to build it.
        build: The commands that build it.
        command: The command that runs it.
        changelog: The name of its changelog topic, with {group} and {topic}.
        decode: Decodes a count in the changelog.
        share: The share of our row's records, so that it runs about as long.
    """

    name: str
    needs: Sequence[str]
    build: Sequence[tuple[Path, Sequence[str]]]
    command: Sequence[str]
    changelog: str
    decode: Callable[[bytes], int]
    share: float


def _long(value: bytes) -> int:
    return int(struct.unpack(">q", value)[0])


def _json(value: bytes) -> int:
    return int(json.loads(value))


def peers() -> tuple[Peer, ...]:
    """Return all peers with programs."""
    streams_out, quix = BUILD / "kafka_streams", BUILD / "quix_streams"
    jars = f"-DoutputDirectory={streams_out / 'dependency'}"
    maven = ["mvn", "-q", "-B", f"-Dbench.out={streams_out}", "compile", COPY_GOAL, jars]
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    classes = f"{streams_out / 'classes'}:{streams_out / 'dependency'}/*"
    pip = [str(quix / "bin" / "pip"), "install", "--quiet", "--require-hashes", "-r", "requirements.txt"]
    return (
        Peer(
            "kafka_streams",
            ("java", "mvn"),
            [(HERE / "kafka_streams", maven)],
            ["java", "-Xmx1g", quiet, "-cp", classes, "ClickCount"],
            "{group}-counts-changelog",
            _long,
            1.0,
        ),
        Peer(
            "goka",
            ("go",),
            [(HERE / "goka", ["go", "build", "-o", str(BUILD / "goka"), "."])],
            [str(BUILD / "goka")],
            "{group}-table",
            int,
            0.5,
        ),
        Peer(
            "quix_streams",
            (),
            [(ROOT, [sys.executable, "-m", "venv", str(quix)]), (HERE / "quix_streams", pip)],
            [str(quix / "bin" / "python"), str(HERE / "quix_streams" / "main.py")],
            "changelog__{group}--{topic}--default",
            _json,
            0.2,
        ),
    )


def missing(peer: Peer) -> list[str]:
    """Return the programs that are missing on this machine to build it."""
    return [program for program in peer.needs if shutil.which(program) is None]


def build(peer: Peer) -> None:
    """Build it into `build/peers`. Raises `RowFailed` with the tool's output."""
    BUILD.mkdir(parents=True, exist_ok=True)
    for folder, command in peer.build:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        if done.returncode:
            raise RowFailed(f"{command[0]} failed: {(done.stdout + done.stderr)[-2000:]}")


def steps(chosen: Sequence[Peer]) -> list[Step]:
    """Return the steps of the peers, after their baselines."""
    return [
        Step(("ceiling",), lambda site: streams.ceiling(site, "ceiling", streams.uniform(site))),
        Step(("plain_loop",), lambda site: streams.plain_loop(site, "plain_loop", streams.uniform(site))),
        Step(
            (BASELINE,), lambda site: streams.processor(site, BASELINE, streams.uniform(site), commit_ms=1000)
        ),
        *(Step((f"peer_{peer.name}",), partial(measure, peer=peer)) for peer in chosen),
    ]


def measure(site: Site, peer: Peer) -> list[Figure]:
    """Measure from the first record until all are committed, with a second between commits."""
    build(peer)
    name = f"peer_{peer.name}"
    clicks = Clicks(int(site.sizes.stream * peer.share))
    topic, group = site.clicks(clicks), site.name(name)
    job = Job(site.broker, topic, group, clicks.records, str(site.state(group)), commit_ms=1000)
    job = replace(job, schema=str(SCHEMA))
    with Program(peer.command, job.environment(), site.log(name)) as program:
        first = program.mark("first")
        program.mark("last")
        # As with our own programs: what it was handed is committed at its end, not up to a second later.
        program.ask_to_stop(SIGTERM_CODES)
        committed = site.wait_committed(program, job)
        program.end()
    changelog = peer.changelog.format(group=group, topic=topic)
    site.check_counts(changelog, job, peer.decode)
    site.wipe(group)
    site.delete(f"{group}-", changelog)
    figure = streams.rate(name, job.records, first, committed, program)
    return [replace(figure, baseline=BASELINE)]
