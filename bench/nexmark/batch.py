"""The same queries over all events at once, in plain Python: the expected results of the flows."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from bench.nexmark.generator import Event
from bench.nexmark.queries import AUCTION_SKIP, CATEGORY, MS, PERIOD, STATES, WINDOW, euros

if TYPE_CHECKING:
    from bench.nexmark.model import Auction, Bid, Person

SIZE, EVERY = WINDOW // MS, PERIOD // MS

Results = list[tuple[int, Any]]
"""Keys and values, in no order."""


class Events:
    """The events of a run, by kind.

    Args:
        events: All of them.
        until: The event time that has been reached: windows that end later are open, and have no results.
    """

    def __init__(self, events: Iterable[Event], until: int | None = None) -> None:
        self.persons: list[Person] = []
        self.auctions: list[Auction] = []
        self.bids: list[Bid] = []
        for event in events:
            if "bidder" in event:
                self.bids.append(cast("Bid", event))
            elif "seller" in event:
                self.auctions.append(cast("Auction", event))
            else:
                self.persons.append(event)
        self.until = until

    def closed(self, end: int) -> bool:
        """Whether a window that ends then has results."""
        return self.until is None or end <= self.until


def currency(events: Events) -> Results:
    return [(bid["auction"], euros(bid)) for bid in events.bids]


def selection(events: Events) -> Results:
    return [
        (bid["auction"], {"auction": bid["auction"], "price": bid["price"]})
        for bid in events.bids
        if bid["auction"] % AUCTION_SKIP == 0
    ]


def local_items(events: Events) -> Results:
    there = {person["id"]: person for person in events.persons if person["state"] in STATES}
    found = [
        (sale, there[sale["seller"]])
        for sale in events.auctions
        if sale["category"] == CATEGORY and sale["seller"] in there
    ]
    return [
        (
            sale["id"],
            {
                "name": who["name"],
                "city": who["city"],
                "state": who["state"],
                "auction": sale["id"],
            },
        )
        for sale, who in found
    ]


def average_price(events: Events) -> Results:
    sales = {sale["id"]: sale for sale in events.auctions}
    highest: dict[int, int] = {}
    for bid in events.bids:
        sale = sales.get(bid["auction"])
        if sale is not None and sale["at"] <= bid["at"] <= sale["expires"]:
            highest[sale["id"]] = max(bid["price"], highest.get(sale["id"], 0))
    prices: dict[int, list[int]] = defaultdict(list)
    for auction, price in highest.items():
        prices[sales[auction]["category"]].append(price)
    return [(category, sum(found) // len(found)) for category, found in prices.items()]


def hot_items(events: Events) -> Results:
    counted: dict[int, Counter[int]] = defaultdict(Counter)
    for bid in events.bids:
        newest = bid["at"] // EVERY * EVERY
        for start in range(newest, newest - SIZE, -EVERY):
            counted[start + SIZE][bid["auction"]] += 1
    results = []
    for end, counts in counted.items():
        if events.closed(end):
            most = max(counts.values())
            hot = [{"auction": auction, "bids": bids} for auction, bids in counts.items() if bids == most]
            results.append((end, hot))
    return results


def highest_bid(events: Events) -> Results:
    by_window: dict[int, list[Bid]] = defaultdict(list)
    for bid in events.bids:
        by_window[bid["at"] // SIZE * SIZE].append(bid)
    results = []
    for start, bids in by_window.items():
        if events.closed(start + SIZE):
            price = max(bid["price"] for bid in bids)
            results.append((start, [bid for bid in bids if bid["price"] == price]))
    return results


def new_sellers(events: Events) -> Results:
    persons = {person["id"]: person for person in events.persons}
    return [
        (who["id"], {"name": who["name"], "reserve": sale["reserve"]})
        for sale in events.auctions
        if (who := persons.get(sale["seller"])) is not None and who["at"] // SIZE == sale["at"] // SIZE
    ]


def sessions(events: Events) -> Results:
    times: dict[int, list[int]] = defaultdict(list)
    for bid in sorted(events.bids, key=lambda bid: bid["at"]):
        times[bid["bidder"]].append(bid["at"])
    results = []
    for bidder, found in times.items():
        count = 0
        for time, following in zip(found, [*found[1:], None], strict=True):
            count += 1
            if following is None or following > time + SIZE:
                if events.closed(time + SIZE + 1):
                    results.append((bidder, count))
                count = 0
    return results


BATCH: Mapping[int, Callable[[Events], Results]] = {
    1: currency,
    2: selection,
    3: local_items,
    4: average_price,
    5: hot_items,
    7: highest_bid,
    8: new_sellers,
    11: sessions,
}
"""The queries whose results depend only on the events: all but 12, which uses the wall clock."""


def comparable(query: int, results: Iterable[tuple[int, Any]]) -> Sequence[Any]:
    """Return the results sorted: for tables the last one of each key, for streams all."""
    found = dict(results).items() if query in {3, 4} else results
    return sorted(repr((key, _ordered(value))) for key, value in found)


def _ordered(value: Any) -> Any:
    if isinstance(value, list):
        return sorted(repr(sorted(each.items())) for each in value)
    return sorted(value.items()) if isinstance(value, dict) else value
