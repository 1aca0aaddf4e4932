"""Counts orders with Faust: records of typed JSON, a table in memory, at least once, as by default.

Runs in a venv of its own.
"""

import os
import time
from typing import Any

import faust  # type: ignore[import-not-found] # it is not in our environment

RECORDS = int(os.environ["BENCH_RECORDS"])
PARTITIONS = int(os.environ["BENCH_PARTITIONS"])


class Item(faust.Record):  # type: ignore[misc] # the same
    sku: str
    price: float
    count: int


class Order(faust.Record, serializer="json"):  # type: ignore[misc, call-arg] # the same
    id: str
    user: str
    at: int
    items: list[Item]


app = faust.App(
    os.environ["BENCH_GROUP"],
    broker=f"kafka://{os.environ['BENCH_BROKER']}",
    datadir=os.environ["BENCH_STATE_DIR"],
    topic_partitions=PARTITIONS,
    broker_commit_interval=int(os.environ["BENCH_COMMIT_MS"]) / 1000,
    consumer_auto_offset_reset="earliest",
    web_enabled=False,
)
topic = app.topic(os.environ["BENCH_TOPIC"], key_type=str, value_type=Order)
counts = app.Table("counts", key_type=str, value_type=int, default=int, partitions=PARTITIONS)


def mark(what: str) -> None:
    os.write(1, f"{what} {time.time():.6f}\n".encode())


@app.agent(topic)  # type: ignore[untyped-decorator] # the same
async def count(orders: Any) -> None:
    seen = 0
    async for user, order in orders.items():
        if not seen:
            mark("first")
        counts[user] += bool(order.items)
        seen += 1
        if seen == RECORDS:
            mark("last")


if __name__ == "__main__":
    faust.Worker(app, loglevel="WARNING").execute_from_commandline()
