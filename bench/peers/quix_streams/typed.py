"""Counts orders with Quix Streams, exactly once: its JSON deserializer, whose values are dicts.

Runs in a venv of its own.
"""

import os
import time
from typing import Any

from quixstreams import Application  # type: ignore[import-not-found] # it is not in our environment
from quixstreams.models import TopicConfig  # type: ignore[import-not-found] # the same

RECORDS = int(os.environ["BENCH_RECORDS"])


class Counter:
    """The handler. It marks the first and the last record."""

    def __init__(self) -> None:
        self._seen = 0

    def count(self, order: Any, state: Any) -> int:
        if not self._seen:
            mark("first")
        total: int = state.get("count", 0) + bool(order["items"])
        state.set("count", total)
        self._seen += 1
        if self._seen == RECORDS:
            mark("last")
        return total


def mark(what: str) -> None:
    os.write(1, f"{what} {time.time():.6f}\n".encode())


def main() -> None:
    app = Application(
        os.environ["BENCH_BROKER"],
        consumer_group=os.environ["BENCH_GROUP"],
        auto_offset_reset="earliest",
        commit_interval=int(os.environ["BENCH_COMMIT_MS"]) / 1000,
        state_dir=os.environ["BENCH_STATE_DIR"],
        processing_guarantee="exactly-once",
        loglevel="WARNING",
    )
    config = TopicConfig(num_partitions=int(os.environ["BENCH_PARTITIONS"]), replication_factor=1)
    topic = app.topic(
        os.environ["BENCH_TOPIC"], key_deserializer="str", value_deserializer="json", config=config
    )
    app.dataframe(topic).apply(Counter().count, stateful=True)
    app.run()


if __name__ == "__main__":
    main()
