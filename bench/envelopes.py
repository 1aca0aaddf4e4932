"""A topic of the changes of a table, as Debezium's connector writes them in JSON without schemas."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from bench.clicks import filler, put

UNAVAILABLE = "__debezium_unavailable_value"
_TEXT = "a text of some words that the database keeps beside the row, and sends only if it was changed"
_ENVELOPE = (
    '{"before":null,"after":{"id":%d,"name":"name %d","active":true,"amount":%d,"bio":"%s"},"source":{"version":"3.6.0.Final",'
    '"connector":"postgresql","name":"bench","ts_ms":%d,"snapshot":"false","db":"bench","sequence":"[null,\\"%d\\"]",'
    '"ts_us":%d,"ts_ns":%d,"schema":"public","table":"customers","txId":%d,"lsn":%d,"xmin":null},"transaction":null,'
    '"op":"%s","ts_ms":%d,"ts_us":%d,"ts_ns":%d}'
)
_BEGAN_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Envelopes:
    """The contents of a topic of changes: creations first, then updates; each tenth update lacks the long value.

    Attributes:
        records: The number of changes.
        keys: The number of rows.
    """

    records: int
    keys: int = 100_000

    @property
    def topic(self) -> str:
        return f"envelopes-{self.records}-of-{self.keys}"

    def changed(self) -> Iterator[int]:
        """Yield the keys of the changes, in their order; always the same."""
        random = Random(3)
        for number in range(self.records):
            yield number if number < self.keys else random.randrange(self.keys)

    def amounts(self) -> int:
        """Return the sum of the amounts of all rows after the last change: an amount is the number of its change."""
        last = {key: number for number, key in enumerate(self.changed())}
        return sum(last.values())


def envelope(number: int, key: int, *, created: bool) -> bytes:
    """Return the envelope of a change.

    Args:
        number: The number of the change.
        key: The key of its row.
        created: Whether the row is new.
    """
    bio = UNAVAILABLE if number % 10 == 9 and not created else _TEXT
    at, lsn = _BEGAN_MS + number, 24_000_000 + 8 * number
    us, ns = at * 1_000, at * 1_000_000
    operation = "c" if created else "u"
    values = (
        key, number, number, bio, at, lsn, us, ns, 700 + number, lsn, operation, at, us, ns,
    )  # fmt: skip
    return (_ENVELOPE % values).encode()


def fill(broker: str, envelopes: Envelopes) -> None:
    """Write the changes to their topic, which exists."""
    producer = filler(broker)
    for number, key in enumerate(envelopes.changed()):
        data = envelope(number, key, created=number < envelopes.keys)
        put(producer, envelopes.topic, b'{"id":%d}' % key, data)
    producer.flush()
