"""The queries of Nexmark as flows, through the engine without a broker: their results equal a batch computation's."""

from collections import Counter
from typing import Any

import pytest
from bench.figures import Figure, by_name
from bench.nexmark import flink
from bench.nexmark.batch import BATCH, Events, comparable
from bench.nexmark.generator import FIRST_ID, Event, Generator
from bench.nexmark.model import Topics
from bench.nexmark.queries import OUTPUTS, flow_of
from bench.nexmark.table import table

from streamtable import Long, Stream
from streamtable_testing.tester import Tester

COUNT = 2_000
PARTITIONS = 3
NOW_S = 1_700_000_000
TOPICS = Topics()
# Few events a second, so that a few thousand reach over several windows.
GENERATOR = Generator(base_ms=NOW_S * 1000 - 60_000, rate=70)


def emit(tester: Tester, events: list[Event]) -> None:
    found = Events(events)
    tester.emit_many(TOPICS.auctions, ((each["id"], each) for each in found.auctions))
    tester.emit_many(TOPICS.bids, ((each["auction"], each) for each in found.bids))
    tester.emit_many(TOPICS.persons, ((each["id"], each) for each in found.persons))


def results_of(query: int) -> list[tuple[Any, Any]]:
    events = list(GENERATOR.events(COUNT))
    with Tester(partitions=PARTITIONS, now=NOW_S) as tester:
        tester.create(TOPICS.persons, TOPICS.auctions, TOPICS.bids)
        flow = flow_of(
            query,
            "q",
            TOPICS,
            clock=lambda: round(tester.clock.now() * 1000),
            longest_auction_ms=GENERATOR.longest_auction_ms,
        )
        tester.run(flow)
        emit(tester, events)
        tester.advance(120)  # all inputs are idle, so that the last windows close
        return [(each.key, each.value) for each in tester.records(Stream("q-out", Long(), OUTPUTS[query]))]


@pytest.mark.parametrize("query", BATCH)
def test_a_query_has_the_results_of_a_batch_over_the_same_events(query: int) -> None:
    expected = BATCH[query](Events(GENERATOR.events(COUNT)))
    assert expected
    assert comparable(query, results_of(query)) == comparable(query, expected)


def test_windows_of_the_wall_clock_count_each_bid_once() -> None:
    bids = Counter(each["bidder"] for each in Events(GENERATOR.events(COUNT)).bids)
    counted: Counter[int] = Counter()
    for bidder, count in results_of(12):
        counted[bidder] += count
    assert counted == bids


def test_the_generator_makes_the_proportions_of_the_published_one() -> None:
    events = Events(GENERATOR.events(10_000))
    assert (len(events.persons), len(events.auctions), len(events.bids)) == (200, 600, 9_200)
    assert [each["id"] for each in events.persons] == list(range(FIRST_ID, FIRST_ID + 200))
    assert [each["id"] for each in events.auctions] == list(range(FIRST_ID, FIRST_ID + 600))
    # Half of the bids are on hot auctions, three of four auctions are opened by hot sellers, and bids made by hot bidders.
    assert sum(each["auction"] % 100 == 0 for each in events.bids) / 9_200 == pytest.approx(0.5, abs=0.03)
    assert sum(each["seller"] % 100 == 0 for each in events.auctions) / 600 == pytest.approx(0.75, abs=0.06)
    assert sum(each["bidder"] % 100 == 1 for each in events.bids) / 9_200 == pytest.approx(0.75, abs=0.03)
    prices = sorted(each["price"] for each in events.bids)
    assert 100 <= prices[0] < prices[-1] <= 100_000_000
    assert 80_000 < prices[len(prices) // 2] < 125_000  # as many below a thousand dollars as above


def test_the_page_shows_both_programs_side_by_side() -> None:
    ours = Figure("nexmark_q1", 1_000.0, "records/s", cpu_seconds=1.0, records=100_000, rss_mb=100.0)
    theirs = Figure("peer_nexmark_q1", 500.0, "records/s", cpu_seconds=4.0, records=100_000, rss_mb=400.0)
    other = Figure("flink_nexmark_q1", 250.0, "records/s", cpu_seconds=3.0, records=100_000, rss_mb=700.0)
    failed = Figure("nexmark_q2", None, "", error="no broker")
    shown = table(by_name([ours, theirs, other, failed])).splitlines()[2:]
    assert shown[0] == "| 1 | 1,000 | 500 | 2 | 250 | 10 | 40 | 0.25 | 30 | 100 | 400 | 700 |"
    assert shown[1].startswith("| 2: nexmark_q2 failed |")
    assert "make bench-nexmark" in table({})


def test_the_generator_makes_the_same_of_the_same_seed() -> None:
    assert list(GENERATOR.events(200)) == list(GENERATOR.events(200))
    assert list(GENERATOR.events(200)) != list(Generator(GENERATOR.base_ms, 100, seed=2).events(200))


def test_the_rows_of_flink_sql_are_compared_as_our_own_results() -> None:
    rows = [b'{"ends": 5, "auction": 1, "bids": 2}', b'{"ends": 5, "auction": 3, "bids": 2}']
    hot = [{"auction": 1, "bids": 2}, {"auction": 3, "bids": 2}]
    assert flink.results(5, rows) == [(5, hot)]
    sold = b'{"id": 7, "name": "Ada", "reserve": 9}'
    assert flink.results(8, [sold]) == [(7, {"name": "Ada", "reserve": 9})]
