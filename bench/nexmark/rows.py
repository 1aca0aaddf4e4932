"""Rows about Nexmark: each query as a flow, and some of them with Kafka Streams, on the same broker and the same events."""

import shutil
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from bench.clicks import filler, put
from bench.figures import Figure
from bench.job import Job
from bench.measure import Mark, Program, RowFailed
from bench.nexmark import flink
from bench.nexmark.batch import BATCH, Events, Results, comparable
from bench.nexmark.generator import Event, Generator
from bench.nexmark.model import SCHEMAS, Auction, Bid, Person, Topics
from bench.nexmark.queries import OUTPUTS
from bench.peers import rows as peers
from bench.plan import Step
from bench.programs.nexmark import flow_of_job
from bench.site import Site
from bench.streams import number, rate
from confluent_kafka import Consumer, TopicPartition

from streamtable import App, Kafka, Long
from streamtable.base.partitioner import partition_for
from streamtable.base.ports import Codec

QUERIES = (1, 2, 3, 4, 5, 7, 8, 11, 12)
BESIDE = (1, 3, 5, 8)
"""The queries with a Kafka Streams version."""
PARTITIONS = 4
RATE = 10_000
_AT_ONCE = frozenset(
    {1, 2}
)  # their results are written with the commit of the input, so there is nothing to wait for
_CLOSING_ID = 10_000_000
_CLOSING_MS = 10 * 60_000  # after the last event, all windows are closed
_LIMIT_SECONDS = 240.0


class Input:
    """The events of a run, in their topics.

    Args:
        site: The site of the topics.
        count: The number of events, without those that close the windows.
        now_ms: The wall-clock time; all events are earlier.
    """

    def __init__(self, site: Site, count: int, now_ms: int) -> None:
        self.topics = Topics("nexmark")
        self._site = site
        generator = Generator(now_ms - count * 1000 // RATE, RATE)
        self.until_ms = now_ms + _CLOSING_MS
        self.events = Events(chain(generator.events(count), self._closing()), self.until_ms)
        self._expected: dict[int, Sequence[Any]] = {}
        self._fill()

    def expected(self, query: int) -> Sequence[Any]:
        """Return the expected results of a query; empty for one that depends on the wall clock."""
        if query not in self._expected and query in BATCH:
            self._expected[query] = comparable(query, BATCH[query](self.events))
        return self._expected.get(query, ())

    def records(self, topics: Collection[str]) -> int:
        """Return the number of events in these topics."""
        return sum(len(events) for stream, _, events in self.by_stream() if stream.name in topics)

    def expected_of_closed(self, query: int) -> Sequence[Any]:
        """Return the results of the measured events, without the results of the events that close the last windows."""
        return comparable(
            query, [each for each in BATCH[query](self.events) if query != 8 or each[0] < _CLOSING_ID]
        )

    def by_stream(self) -> Sequence[tuple[Any, str, Sequence[Any]]]:
        """Return the streams, the name of the field that is the key of each, and the events."""
        events, topics = self.events, self.topics
        return (
            (topics.persons, "id", events.persons),
            (topics.auctions, "id", events.auctions),
            (topics.bids, "auction", events.bids),
        )

    def _closing(self) -> Iterable[Event]:
        """An event of each kind for each partition, so late that the windows of all others are closed."""
        ids: dict[int, int] = {}
        candidate = _CLOSING_ID
        while len(ids) < PARTITIONS:
            ids.setdefault(partition_for(Long().encode(candidate), PARTITIONS), candidate)
            candidate += 1
        at = self.until_ms
        for each in ids.values():
            yield Person(id=each, name="", email="", credit_card="", city="", state="", at=at, extra="")
            yield Auction(
                id=each,
                item="",
                description="",
                initial_bid=0,
                reserve=0,
                at=at,
                expires=at,
                seller=each,
                category=0,
                extra="",
            )
            yield Bid(auction=each, bidder=each, price=0, at=at, extra="")

    def _fill(self) -> None:
        streams = self.by_stream()
        self._site.create([stream.name for stream, _, _ in streams], PARTITIONS)
        producer = filler(self._site.broker)
        for stream, key, events in streams:
            for event in events:
                put(producer, stream.name, stream.key.encode(event[key]), stream.value.encode(event))
        producer.flush()
        for stream, _, events in streams:
            held = self._site.held(stream.name, PARTITIONS)
            if held != len(events):
                raise RowFailed(f"{stream.name} holds {held} records, not {len(events)}")


class Collected:
    """The committed records of a topic, read as they arrive.

    Args:
        broker: The address of Kafka.
        topic: The topic.
        codec: The codec of the values.
    """

    def __init__(self, broker: str, topic: str, codec: Codec[Any]) -> None:
        self.records: list[tuple[bytes, bytes]] = []
        self._codec = codec
        self._client = Consumer(
            {
                "bootstrap.servers": broker,
                "group.id": f"check-{topic}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._client.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])

    def read(self) -> int:
        """Read the new records. Returns the total number of records."""
        while messages := self._client.consume(10_000, 0.1):
            for message in messages:
                if message.error() is not None:
                    raise RowFailed(f"the results cannot be read: {message.error()}")
                self.records.append((bytes(message.key() or b""), bytes(message.value() or b"")))
        return len(self.records)

    def results(self) -> Results:
        """Return the records decoded."""
        keys, decode = Long(), self._codec.decode
        return [(keys.decode(key), decode(value)) for key, value in self.records if value]

    def close(self) -> None:
        self._client.close()


class Nexmark:
    """The rows: each measures one query.

    Args:
        beside: Whether Kafka Streams and Flink SQL are measured too.
    """

    def __init__(self, *, beside: bool) -> None:
        self._beside = beside
        self._headless = False
        self._input: Input | None = None

    def steps(self) -> list[Step]:
        """Return the queries, each followed by Kafka Streams' version of it."""
        steps = []
        for query in QUERIES:
            steps.append(Step((f"nexmark_q{query}",), partial(self._ours, query=query)))
            if self._beside and query in BESIDE:
                steps.append(Step((f"peer_nexmark_q{query}",), partial(self._theirs, query=query)))
            if self._beside and query in flink.READS:
                steps.append(Step((f"flink_nexmark_q{query}",), partial(self._flink, query=query)))
        return steps

    def _ours(self, site: Site, query: int) -> list[Figure]:
        name = f"nexmark_q{query}"
        given, job = self._given(site), _job(site, name, query)
        flow = flow_of_job(job)
        App(Kafka(site.broker), job.state_dir).create_topics(flow, partitions=PARTITIONS)
        raw = [stream.name for stream in (given.topics.persons, given.topics.auctions, given.topics.bids)]
        reads = {
            group.name: topics
            for group in flow.groups
            if (topics := [each.stream.name for each in group.inputs if each.stream.name in raw])
        }
        job = replace(job, records=given.records(set().union(*reads.values())))
        given.expected(query)  # before it is measured
        with site.start("nexmark", job, name) as program:
            first, last = _worked_off(site, program, given, query, job, reads)
            program.stop()
        site.forget(job.group)
        return [rate(name, job.records, first, last, program)]

    def _theirs(self, site: Site, query: int) -> list[Figure]:
        peer = next(each for each in peers.peers() if each.name == "kafka_streams")
        peers.build(peer)
        name = f"peer_nexmark_q{query}"
        given, topics = self._given(site), _TOPICS_OF[query]
        reads = [f"{given.topics.prefix}-{kind}" for kind in topics]
        job = replace(_job(site, name, query), records=given.records(reads), schema=str(SCHEMAS))
        site.create([f"{job.group}-out"], PARTITIONS)
        command = [*peer.command[:-1], "Nexmark"]
        given.expected(query)  # before it is measured
        with Program(command, job.environment(), site.log(name), _LIMIT_SECONDS) as program:
            first, last = _worked_off(site, program, given, query, job, {job.group: reads}, latest=query == 5)
            program.ask_to_stop((0, 143, -15))
            program.end()
        site.forget(job.group)
        figure = rate(name, job.records, first, last, program)
        return [replace(figure, baseline=f"nexmark_q{query}")]

    def _flink(self, site: Site, query: int) -> list[Figure]:
        peers.build(flink.peer())
        name = f"flink_nexmark_q{query}"
        given = self._given(site)
        if not self._headless:
            flink.fill(site, given.by_stream(), PARTITIONS)
            self._headless = True
        records = given.records([f"{given.topics.prefix}-{kind}" for kind in flink.READS[query]])
        job = replace(_job(site, name, query), records=records, topic=flink.PREFIX)
        site.create([f"{job.group}-out"], PARTITIONS)
        first, last, rss_mb = flink.worked_off(site, job, name, given.expected_of_closed(query))
        site.forget(job.group)
        seconds, cpu = last.time - first.time, last.cpu - first.cpu
        figure = Figure(name, records / seconds, "records/s", cpu_seconds=cpu, rss_mb=rss_mb, records=records)
        return [replace(figure, baseline=f"nexmark_q{query}")]

    def _given(self, site: Site) -> Input:
        if self._input is None:
            self._input = Input(site, site.sizes.handler, time.time_ns() // 1_000_000)
        return self._input


_TOPICS_OF = {1: ("bids",), 3: ("persons", "auctions"), 5: ("bids",), 8: ("persons", "auctions")}


def missing() -> list[str]:
    """Return the programs that are missing on this machine to measure Kafka Streams."""
    return [program for program in ("java", "mvn") if shutil.which(program) is None]


def _job(site: Site, name: str, query: int) -> Job:
    group = site.name(name)
    return Job(
        site.broker,
        "nexmark",
        group,
        state_dir=str(site.state(group)),
        partitions=PARTITIONS,
        commit_ms=1000,
        handler=str(query),
        until="signal",
        rate=RATE,
    )


def _worked_off(
    site: Site,
    program: Program,
    given: Input,
    query: int,
    job: Job,
    reads: dict[str, list[str]],
    *,
    latest: bool = False,
) -> tuple[Mark, Mark]:
    """Wait until all events are committed and all results are there, and check these.

    Args:
        site: The site of the program.
        program: The program.
        given: The events.
        query: The number of the query.
        job: The job of the program.
        reads: The topics of events that each consumer group reads.
        latest: Compare only the last result of each key: there are earlier ones.
    """
    first = program.mark("first")
    for group, topics in reads.items():
        # One after the other, as a group's committed offsets only grow.
        for topic in topics:
            part = replace(job, group=group, topic=topic, records=given.records({topic}))
            last = site.wait_committed(program, part)
    if query == 12:
        return first, _counted(site, program, given, job)
    expected = given.expected(query)
    found = Collected(site.broker, f"{job.group}-out", OUTPUTS[query])

    def right() -> bool:
        results = found.results()
        return comparable(query, dict(results).items() if latest else results) == expected

    def there() -> bool:
        return found.read() >= len(expected) and (query in _AT_ONCE or right())

    try:
        program.wait(there, f"does not have the {len(expected)} results of the batch")
        if query not in _AT_ONCE:
            last = program.now()
        elif not right():
            raise RowFailed("wrong: its results differ from the batch's")
    finally:
        found.close()
    return first, last


def _counted(site: Site, program: Program, given: Input, job: Job) -> Mark:
    """Wait until all bids are counted, in whichever window of the wall clock."""
    found = Collected(site.broker, f"{job.group}-by-bidder-bids", Long())
    bids = len(given.events.bids)

    def there() -> bool:
        found.read()
        return sum(number(value) for value in dict(found.records).values() if value) == bids

    try:
        program.wait(there, f"has not counted all {bids} bids")
        return program.now()
    finally:
        found.close()
