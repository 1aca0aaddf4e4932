"""A `Capture` costs little more than a handler that takes the same envelopes as JSON and sets their rows."""

import time
from statistics import median
from typing import Any

import msgspec

from streamtable import Context, Group, Input, Json, Persist, Stream
from streamtable_capture import Capture, ConnectKey, Debezium
from streamtable_testing import Tester

RECORDS, KEYS = 3_000, 1_000
KEY = ConnectKey(id=int)
FLOOR = 0.5
"""Of the records a second of that handler, on a busy machine; on a quiet one it is 0.85, and the goal is 0.7."""


class Customer(msgspec.Struct):
    id: int
    name: str
    active: bool
    email: str
    bio: str | None = None


def envelope(key: int, lsn: int) -> bytes:
    row = Customer(key, f"name {lsn}", True, f"user{key}@example.org", "a text of some words")
    more = {
        "version": "3.6.0.Final",
        "connector": "postgresql",
        "name": "shop",
        "db": "shop",
        "ts_us": lsn,
        "txId": lsn,
    }
    source = {
        **more,
        "ts_ms": lsn,
        "snapshot": "false",
        "schema": "public",
        "table": "customers",
        "lsn": lsn,
        "xmin": None,
    }
    return msgspec.json.encode(
        {"before": None, "after": row, "source": source, "op": "u", "ts_ms": lsn, "ts_us": lsn}
    )


def take(ctx: Context[int, Any], change: Any) -> None:
    ctx.set(change["after"])


def seconds(group: Group[Any, Any]) -> float:
    """Return the CPU seconds of all records."""
    with Tester(partitions=1) as tester:
        tester.run(group)
        for number in range(RECORDS):
            key = number % KEYS
            tester.kafka.append("raw", KEY.encode(key), envelope(key, 8 * number))
        began = time.process_time()
        tester.work()
        return time.process_time() - began


def test_a_capture_handles_at_least_half_of_the_records_a_second_of_a_handler_of_json() -> None:
    raw: Stream[int, Any] = Stream("raw", KEY, Json())
    plain = Group("plain", Input(raw, take), Persist(Json()))
    captured = Capture("captured", Stream("raw", KEY, Debezium(Customer)))
    ratios = [seconds(plain) / seconds(captured) for _ in range(3)]
    assert median(ratios) >= FLOOR, ratios
