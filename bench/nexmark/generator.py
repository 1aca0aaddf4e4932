"""The events of Nexmark, made from a seed.

The numbers come from the generator that Apache Beam publishes (`sdks/java/testing/nexmark`, with the defaults of its
`NexmarkConfiguration`, one generator, events in order): of 50 events one is a person, three are auctions and 46 are bids;
the choices of hot sellers, auctions and bidders, ids that run ahead, prices, lengths of auctions, and sizes.
"""

import math
import string
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from bench.nexmark.model import Auction, Bid, Person

PERSONS, AUCTIONS, ALL = 1, 3, 50
"""The numbers of persons and auctions among this many events; the rest are bids."""
FIRST_ID = 1000  # of persons and of auctions
FIRST_CATEGORY = 10
CATEGORIES = 5
HOT_EVERY = 100  # one of this many sellers, auctions or bidders is hot
HOT_SELLERS, HOT_AUCTIONS, HOT_BIDDERS = 4, 2, 4
"""All but one of this many choices are hot."""
ACTIVE_PERSONS = 1000
IDS_AHEAD = 10
OPEN_AUCTIONS = 100
PERSON_BYTES, AUCTION_BYTES, BID_BYTES = 200, 500, 100
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
FIRST_NAMES = (
    "Peter",
    "Paul",
    "Luke",
    "John",
    "Saul",
    "Vicky",
    "Kate",
    "Julie",
    "Sarah",
    "Deiter",
    "Walter",
)
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_LETTERS = 10_000
_CHANGE = 5  # sizes differ by up to a fifth

Event = Person | Auction | Bid


@dataclass(frozen=True)
class Generator:
    """A sequence of events, the same each time.

    Args:
        base_ms: The event time of the first one.
        rate: Events in a second of event time.
        seed: The seed of the random choices.
    """

    base_ms: int
    rate: int = 10_000
    seed: int = 1

    def at(self, number: int) -> int:
        """Return the event time of the event with this number."""
        return self.base_ms + number * 1000 // self.rate

    @property
    def mean_auction_ms(self) -> int:
        """The mean length of auctions: in this time as many auctions are opened as are open at a time."""
        return OPEN_AUCTIONS * ALL // AUCTIONS * 1000 // self.rate

    @property
    def longest_auction_ms(self) -> int:
        return max(2 * self.mean_auction_ms, 1)

    def events(self, count: int) -> Iterator[Event]:
        """Yield this many events, in the order of event time."""
        random = Random(self.seed)
        text = "".join(random.choices(string.ascii_lowercase, k=_LETTERS))
        for number in range(count):
            place = number % ALL
            if place < PERSONS:
                yield self._person(number, random, text)
            elif place < PERSONS + AUCTIONS:
                yield self._auction(number, random, text)
            else:
                yield self._bid(number, random, text)

    def _person(self, number: int, random: Random, text: str) -> Person:
        name = f"{random.choice(FIRST_NAMES)} {random.choice(LAST_NAMES)}"
        email = f"{_word(random, text, 7)}@{_word(random, text, 5)}.com"
        card = " ".join(f"{random.randrange(10_000):04d}" for _ in range(4))
        city, state = random.choice(CITIES), random.choice(STATES)
        size = 8 + len(name) + len(email) + len(card) + len(city) + len(state)
        return Person(
            id=FIRST_ID + _last_person(number),
            name=name,
            email=email,
            credit_card=card,
            city=city,
            state=state,
            at=self.at(number),
            extra=_filled(random, text, size, PERSON_BYTES),
        )

    def _auction(self, number: int, random: Random, text: str) -> Auction:
        last = _last_person(number)
        hot = random.randrange(HOT_SELLERS) > 0
        seller = last // HOT_EVERY * HOT_EVERY if hot else _some_person(last, random)
        initial_bid = _price(random)
        item, description = _word(random, text, 20), _word(random, text, 100)
        at = self.at(number)
        size = 8 + len(item) + len(description) + 5 * 8
        return Auction(
            id=FIRST_ID + _last_auction(number),
            item=item,
            description=description,
            initial_bid=initial_bid,
            reserve=initial_bid + _price(random),
            at=at,
            expires=at + 1 + random.randrange(self.longest_auction_ms),
            seller=FIRST_ID + seller,
            category=FIRST_CATEGORY + random.randrange(CATEGORIES),
            extra=_filled(random, text, size, AUCTION_BYTES),
        )

    def _bid(self, number: int, random: Random, text: str) -> Bid:
        last, person = _last_auction(number), _last_person(number)
        if random.randrange(HOT_AUCTIONS):
            auction = last // HOT_EVERY * HOT_EVERY
        else:
            first = max(last - OPEN_AUCTIONS, 0)
            auction = first + random.randrange(last - first + 1 + IDS_AHEAD)
        # The second of each hundred, so that hot bidders are not hot sellers.
        hot = random.randrange(HOT_BIDDERS) > 0
        bidder = person // HOT_EVERY * HOT_EVERY + 1 if hot else _some_person(person, random)
        return Bid(
            auction=FIRST_ID + auction,
            bidder=FIRST_ID + bidder,
            price=_price(random),
            at=self.at(number),
            extra=_filled(random, text, 4 * 8, BID_BYTES),
        )


def _last_person(number: int) -> int:
    """Return the number of the last person up to this event."""
    return number // ALL * PERSONS + min(number % ALL, PERSONS - 1)


def _last_auction(number: int) -> int:
    """Return the number of the last auction up to this event; -1 for the very first event."""
    return number // ALL * AUCTIONS + min(number % ALL - PERSONS, AUCTIONS - 1)


def _some_person(last: int, random: Random) -> int:
    """Return one of the active persons, or of those that are about to register."""
    active = min(last + 1, ACTIVE_PERSONS)
    return last + 1 - active + random.randrange(active + IDS_AHEAD)


def _price(random: Random) -> int:
    """Return a price in cents, between one and a million dollars, log-uniformly distributed."""
    return round(math.pow(10.0, 6.0 * random.random()) * 100.0)


def _word(random: Random, text: str, longest: int) -> str:
    return _part(random, text, 3 + random.randrange(longest - 3))


def _filled(random: Random, text: str, size: int, mean: int) -> str:
    """Return padding that brings a record of this size to about the mean size."""
    missing = mean - size
    change = round(missing / _CHANGE)
    return _part(random, text, missing - change + random.randrange(2 * change)) if change > 0 else ""


def _part(random: Random, text: str, length: int) -> str:
    start = random.randrange(_LETTERS - length)
    return text[start : start + length]
