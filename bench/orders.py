"""Orders as JSON, for rows about typed events, and topics full of them. Each has three items, and about 200 bytes."""

import json
from random import Random

from bench.clicks import filler, put
from bench.site import Site

USERS = 100_000
PARTITIONS = 4
_DISTINCT = 200


def order(number: int) -> bytes:
    items = [{"sku": f"sku-{each}", "price": each * 1.5, "count": each} for each in range(3)]
    at = 1_700_000_000_000 + number
    return json.dumps(
        {"id": f"order-{number}", "user": f"user-{number}", "at": at, "items": items}, separators=(",", ":")
    ).encode()


def orders(site: Site, records: int) -> str:
    """Return the topic with these orders, keyed by user, which is filled on first use."""
    topic = f"orders-{records}-of-{USERS}"
    site.fill(topic, records, PARTITIONS, lambda: _fill(site.broker, topic, records))
    return topic


def _fill(broker: str, topic: str, records: int) -> None:
    producer, random = filler(broker), Random(1)
    values = [order(number) for number in range(_DISTINCT)]
    for number in range(records):
        put(producer, topic, b"user-%d" % random.randrange(USERS), values[number % _DISTINCT])
    producer.flush()
