"""Queries 1-5, 7, 8, 11 and 12 of Nexmark as flows, with the sizes of Apache Beam's suite.

Each function adds the query to a new flow that writes its results to `<flow>-out`.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from bench.nexmark.model import BID, BID_SCHEMA, Auction, Bid, Topics, many, record

from streamtable import Avro, EventTime, Long, Stream
from streamtable.base.ports import Codec
from streamtable.flow import Flow, GroupedStream, Hopping, KeyedStream, Session, Tumbling, Windowed

WINDOW = timedelta(seconds=10)
PERIOD = timedelta(seconds=5)
AUCTION_SKIP = 123
CATEGORY = 10
STATES = ("OR", "ID", "CA")
NONE = timedelta(0)
MS = timedelta(milliseconds=1)
IDLE_AFTER = timedelta(seconds=30)

Row = dict[str, Any]
LONG = Long()
SELLER: Avro[Row] = Avro(record("Seller", seller="long"))
PLACE: Avro[Row] = Avro(record("Place", name="string", city="string", state="string"))
SUGGESTION: Avro[Row] = Avro(
    record("Suggestion", name="string", city="string", state="string", auction="long")
)
OFFER: Avro[Row] = Avro(record("Offer", price="long", at="long"))
SALE: Avro[Row] = Avro(record("Sale", category="long", expires="long"))
WINNER: Avro[Row] = Avro(record("Winner", category="long", price="long"))
PRICES: Avro[Row] = Avro(record("Prices", total="long", number="long"))
HOT_SCHEMA = record("Hot", auction="long", bids="long")
HOT: Avro[Row] = Avro(HOT_SCHEMA)
NEW: Avro[Row] = Avro(record("New", name="string", at="long"))
RESERVE: Avro[Row] = Avro(record("Reserve", reserve="long", at="long"))
NEW_SELLER: Avro[Row] = Avro(record("NewSeller", name="string", reserve="long"))
SOLD: Avro[Row] = Avro(record("Sold", auction="long", price="long"))
Clock = Callable[[], int]


OUTPUTS: Mapping[int, Codec[Any]] = {
    1: BID,
    2: SOLD,
    3: SUGGESTION,
    4: LONG,
    5: many(HOT_SCHEMA),
    7: many(BID_SCHEMA),
    8: NEW_SELLER,
    11: LONG,
    12: LONG,
}
"""The codec of the results of each query."""


def at(event: Any) -> int:
    """Return the event time of an event."""
    time: int = event["at"]
    return time


def euros(bid: Bid) -> Bid:
    return {**bid, "price": bid["price"] * 89 // 100}


def currency(flow: Flow, topics: Topics, out: Stream[int, Any]) -> None:
    """Query 1: what is each bid in euros?"""
    flow.stream(topics.bids, time=at).map_values(euros).to(out)


def selection(flow: Flow, topics: Topics, out: Stream[int, Any]) -> None:
    """Query 2: what has been bid on some auctions?"""
    chosen = flow.stream(topics.bids, time=at).filter(lambda bid: bid["auction"] % AUCTION_SKIP == 0)
    chosen.map_values(lambda bid: {"auction": bid["auction"], "price": bid["price"]}).to(out)


def local_items(flow: Flow, topics: Topics, out: Stream[int, Any]) -> None:
    """Query 3: who sells in some states in a category, and in which auctions?"""
    sales = (
        flow.stream(topics.auctions, time=at)
        .filter(lambda auction: auction["category"] == CATEGORY)
        .map_values(lambda auction: {"seller": auction["seller"]}, value=SELLER)
        .to_table("sales")
    )
    sellers = (
        flow.stream(topics.persons, time=at, group="persons")
        .filter(lambda person: person["state"] in STATES)
        .map_values(lambda person: {each: person[each] for each in ("name", "city", "state")}, value=PLACE)
        .to_table("persons-there")
    )
    found = sales.join(
        "suggested", sellers, lambda _, person: person, on=lambda sale: sale["seller"], value=PLACE
    )
    found.map_values(lambda key, row: {**row, "auction": key}, with_key=True).to_stream().to(out)


def average_price(flow: Flow, topics: Topics, out: Stream[int, Any], longest_auction_ms: int) -> None:
    """Query 4: what is the average price of a category, of the highest bid of each auction while it was open?"""
    sales = flow.stream(topics.auctions, time=at).map_values(
        lambda auction: {"category": auction["category"], "expires": auction["expires"]}, value=SALE
    )
    offers = flow.stream(topics.bids, time=at).map_values(
        lambda bid: {"price": bid["price"], "at": bid["at"]}, value=OFFER
    )
    within = (NONE, longest_auction_ms * MS)
    valid = sales.join("valid", offers, _valid, within=within, grace=NONE)
    winners = valid.flat_map_values(list).group_by_key().reduce("winning", _higher, value=WINNER)
    prices = winners.group_by("by-category", lambda row: row["category"], key=LONG).aggregate(
        "prices", lambda: {"total": 0, "number": 0}, _added, _removed, value=PRICES
    )
    averages = prices.filter(lambda row: row["number"]).map_values(lambda row: row["total"] // row["number"])
    averages.to_stream().to(out)


def _valid(sale: Row, offer: Row) -> list[Row]:
    """Return the offer, unless the auction was over."""
    if offer["at"] > sale["expires"]:
        return []
    return [{"category": sale["category"], "price": offer["price"]}]


def _higher(one: Row, other: Row) -> Row:
    return other if other["price"] > one["price"] else one


def _added(row: Row, winner: Row) -> Row:
    return {"total": row["total"] + winner["price"], "number": row["number"] + 1}


def _removed(row: Row, winner: Row) -> Row:
    return {"total": row["total"] - winner["price"], "number": row["number"] - 1}


def hot_items(flow: Flow, topics: Topics, out: Stream[int, Any]) -> None:
    """Query 5: which auctions had most bids, in each window?"""
    bids = flow.stream(topics.bids, time=at).group_by_key()
    counted = bids.window(Hopping(WINDOW, PERIOD, grace=NONE), retention=NONE).count("bids")
    by_window: KeyedStream[int, Row] = (
        counted.final()
        .map(lambda window, count: (window.end_ms, {"auction": window.key, "bids": count}), value=HOT)
        .repartition("by-window", key=LONG)
    )
    windows = by_window.group_by_key().window(Tumbling(PERIOD, grace=NONE), retention=NONE)
    hottest = windows.aggregate("hottest", list, _most, value=many(HOT_SCHEMA))
    hottest.final().map(_by_key).to(out)


def _most(hottest: list[Row], found: Row) -> list[Row]:
    if not hottest or found["bids"] > hottest[0]["bids"]:
        return [found]
    return [*hottest, found] if found["bids"] == hottest[0]["bids"] else hottest


def _by_key(window: Windowed[int], row: Any) -> tuple[int, Any]:
    return window.key, row


def highest_bid(flow: Flow, topics: Topics, out: Stream[int, Any]) -> None:
    """Query 7: which bids were the highest, in each window? First of each auction, then of all."""
    window = Tumbling(WINDOW, grace=NONE)
    bids = flow.stream(topics.bids, time=at).group_by_key().window(window, retention=NONE)
    highest = bids.aggregate("highest-of-auction", list, _highest, value=many(BID_SCHEMA))
    by_window: KeyedStream[int, list[Bid]] = (
        highest.final()
        .map(lambda window, found: (window.start_ms, found), value=many(BID_SCHEMA))
        .repartition("by-window", key=LONG)
    )
    windows = by_window.group_by_key().window(window, retention=NONE)
    whole = windows.aggregate("highest", list, _highest_of_all, value=many(BID_SCHEMA))
    whole.final().map(_by_key).to(out)


def _highest(highest: list[Bid], bid: Bid) -> list[Bid]:
    if not highest or bid["price"] > highest[0]["price"]:
        return [bid]
    return [*highest, bid] if bid["price"] == highest[0]["price"] else highest


def _highest_of_all(highest: list[Bid], found: list[Bid]) -> list[Bid]:
    for bid in found:
        highest = _highest(highest, bid)
    return highest


def new_sellers(flow: Flow, topics: Topics, out: Stream[int, Any]) -> None:
    """Query 8: who has registered and opened auctions in the same window?"""
    persons = flow.stream(topics.persons, time=at).map_values(
        lambda person: {"name": person["name"], "at": person["at"]}, value=NEW
    )
    auctions = (
        flow.stream(topics.auctions, time=at, group="auctions")
        .map(lambda _, auction: (auction["seller"], _reserve(auction)), value=RESERVE)
        .repartition("by-seller", key=LONG, beside=persons)
    )
    joined = persons.join("sellers", auctions, _same_window, within=WINDOW - MS, grace=NONE)
    joined.flat_map_values(list).to(out)


def _reserve(auction: Auction) -> Row:
    return {"reserve": auction["reserve"], "at": auction["at"]}


def _same_window(person: Row, auction: Row) -> list[Row]:
    size = WINDOW // MS
    if person["at"] // size != auction["at"] // size:
        return []
    return [{"name": person["name"], "reserve": auction["reserve"]}]


def sessions(flow: Flow, topics: Topics, out: Stream[int, Any]) -> None:
    """Query 11: how many bids did a person make in each session?"""
    counted = _by_bidder(flow.stream(topics.bids, time=at)).window(
        Session(WINDOW, grace=NONE), retention=NONE
    )
    counted.count("bids").final().map(_by_key).to(out)


def processing_time(flow: Flow, topics: Topics, out: Stream[int, Any], clock: Clock) -> None:
    """Query 12: how many bids did a person make in each window of the wall clock?

    The wall clock is the event time: a record that is processed again after a crash gets another time, but the first
    attempt was not committed.
    """
    bids = _by_bidder(flow.stream(topics.bids, time=lambda _: clock()))
    counted = bids.window(Tumbling(WINDOW, grace=NONE)).count("bids")
    counted.final().map(_by_key).to(out)


def _by_bidder(bids: KeyedStream[int, Bid]) -> GroupedStream[int, int]:
    # Only the bidder and the time need to go through the repartition topic.
    return (
        bids.map(lambda _, bid: (bid["bidder"], 1), value=LONG)
        .repartition("by-bidder", key=LONG)
        .group_by_key()
    )


def flow_of(query: int, name: str, topics: Topics, *, clock: Clock, longest_auction_ms: int) -> Flow:
    """Return a query as a flow.

    Args:
        query: The number of the query.
        name: The name of the flow.
        topics: The streams of the events.
        clock: Returns the wall-clock time in milliseconds; used by query 12 only.
        longest_auction_ms: The maximum length of an auction in milliseconds, for query 4.
    """
    flow = Flow(name, event_time=EventTime(idle_after=IDLE_AFTER))
    out = Stream(f"{name}-out", LONG, OUTPUTS[query])
    if query == 4:
        average_price(flow, topics, out, longest_auction_ms)
    elif query == 12:
        processing_time(flow, topics, out, clock)
    else:
        _QUERIES[query](flow, topics, out)
    return flow


_QUERIES: Mapping[int, Callable[[Flow, Topics, Stream[int, Any]], None]] = {
    1: currency,
    2: selection,
    3: local_items,
    5: hot_items,
    7: highest_bid,
    8: new_sellers,
    11: sessions,
}
