"""The events of Nexmark: persons, auctions and bids, as records of three streams."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from streamtable import Avro, Long, Stream

SCHEMAS = Path(__file__).parent
"""The folder of the schemas; programs in other languages read them too."""


class Person(TypedDict):
    """A person has registered; the key is the id."""

    id: int
    name: str
    email: str
    credit_card: str
    city: str
    state: str
    at: int
    extra: str


class Auction(TypedDict):
    """An auction has been opened; the key is the id."""

    id: int
    item: str
    description: str
    initial_bid: int
    reserve: int
    at: int
    expires: int
    seller: int
    category: int
    extra: str


class Bid(TypedDict):
    """A bid on an auction, whose id is the key."""

    auction: int
    bidder: int
    price: int
    at: int
    extra: str


def _schema(name: str) -> Any:
    return json.loads((SCHEMAS / f"{name}.avsc").read_text())


def record(name: str, /, **fields: str) -> Any:
    """Return the schema of a record with these fields."""
    typed = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "fields": typed}


def many(schema: Any) -> Avro[Any]:
    """Return the codec of a list of items with this schema."""
    return Avro({"type": "array", "items": schema})


BID_SCHEMA = _schema("bid")
PERSON: Avro[Person] = Avro(_schema("person"))
AUCTION: Avro[Auction] = Avro(_schema("auction"))
BID: Avro[Bid] = Avro(BID_SCHEMA)


@dataclass(frozen=True)
class Topics:
    """The streams of the events.

    Args:
        prefix: The prefix of the topics' names.
    """

    prefix: str = "nexmark"

    @property
    def persons(self) -> Stream[int, Person]:
        return Stream(f"{self.prefix}-persons", Long(), PERSON)

    @property
    def auctions(self) -> Stream[int, Auction]:
        return Stream(f"{self.prefix}-auctions", Long(), AUCTION)

    @property
    def bids(self) -> Stream[int, Bid]:
        return Stream(f"{self.prefix}-bids", Long(), BID)
