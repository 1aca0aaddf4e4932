"""Flink SQL beside two queries: the usual alternative for a Python user, started by PyFlink.

It reads separate topics with the same events without the ten-byte header, which Flink's Avro format does not support.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.clicks import filler, put
from bench.family import FamilyProgram
from bench.job import Job
from bench.measure import Mark, RowFailed
from bench.nexmark.batch import Results, comparable
from bench.nexmark.model import Topics
from bench.peers.rows import BUILD, HERE, SIGTERM_CODES, Peer
from bench.site import Site

from localkafka.jars import COPY_GOAL
from streamtable import Stream

READS: Mapping[int, Sequence[str]] = {5: ("bids",), 8: ("persons", "auctions")}
"""The queries with a Flink version, and their input topics."""
PREFIX = "headless"
_HEAD = 10
_LIMIT_SECONDS = 240.0


def peer() -> Peer:
    """Return the commands that build and run it."""
    folder, here = BUILD / "flink", HERE / "flink"
    jars = ["-DexcludeTransitive=true", f"-DoutputDirectory={folder / 'jars'}"]
    return Peer(
        "flink",
        ("java", "mvn"),
        [
            (here, [sys.executable, "-m", "venv", str(folder)]),
            (
                here,
                [
                    str(folder / "bin" / "pip"),
                    "install",
                    "--quiet",
                    "--require-hashes",
                    "-r",
                    "requirements.txt",
                ],
            ),
            (here, ["mvn", "-q", "-B", COPY_GOAL, *jars]),
        ],
        [str(folder / "bin" / "python"), str(here / "main.py"), str(folder / "jars")],
        "",
        int,
        1.0,
    )


def fill(site: Site, streams: Iterable[tuple[Stream[int, Any], str, Sequence[Any]]], partitions: int) -> None:
    """Write events without the header of their Avro encoding.

    Args:
        site: The site of the topics.
        streams: Each stream of events, the name of the field that is its key, and the events.
        partitions: The number of partitions of each topic.
    """
    streams, topics = list(streams), Topics(PREFIX)
    names = [each.name for each in (topics.persons, topics.auctions, topics.bids)]
    site.create(names, partitions)
    producer = filler(site.broker)
    for (stream, key, events), name in zip(streams, names, strict=True):
        for event in events:
            put(producer, name, stream.key.encode(event[key]), stream.value.encode(event)[_HEAD:])
    producer.flush()
    for (_, _, events), name in zip(streams, names, strict=True):
        if (held := site.held(name, partitions)) != len(events):
            raise RowFailed(f"{name} holds {held} records, not {len(events)}")


def worked_off(site: Site, job: Job, name: str, expected: Sequence[Any]) -> tuple[Mark, Mark, float]:
    """Run a query. Returns when the job was running, when all results were there, and the peak of memory in MB.

    Args:
        site: The site to run it on.
        job: The job of the program.
        name: The name of the row.
        expected: The results that it must have, to be compared.
    """
    query, output = int(job.handler), f"{job.group}-out"
    topics = [f"{PREFIX}-{kind}" for kind in READS[query]]
    with FamilyProgram(peer().command, job.environment(), site.log(name), _LIMIT_SECONDS) as program:
        first = program.mark("first")
        program.wait(
            lambda: not site.behind(job.group, topics, 0, job.partitions), "has not committed all events"
        )
        program.wait(
            lambda: comparable(query, results(query, site.values(output, job.partitions))) == expected,
            f"does not have the {len(expected)} results of the batch",
        )
        last = program.now()
        program.ask_to_stop(SIGTERM_CODES)
        program.end()
    return first, last, program.rss_mb


def results(query: int, values: Iterable[bytes]) -> Results:
    """Return its output in the format of our own query."""
    rows: list[dict[str, Any]] = [json.loads(value) for value in values]
    if query == 8:
        return [(row["id"], {"name": row["name"], "reserve": row["reserve"]}) for row in rows]
    hottest: dict[int, list[dict[str, int]]] = {}
    for row in rows:
        hottest.setdefault(row["ends"], []).append({"auction": row["auction"], "bids": row["bids"]})
    return list(hottest.items())
