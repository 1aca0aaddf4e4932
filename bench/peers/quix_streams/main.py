"""Counts clicks with Quix Streams, exactly once: a stateful function, or sessions, its state in RocksDB.

Runs in a venv of its own.
"""

import json
import os
import time
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

from fastavro import parse_schema, schemaless_reader
from quixstreams import Application  # type: ignore[import-not-found] # it is not in our environment
from quixstreams.models import Deserializer, TopicConfig  # type: ignore[import-not-found] # the same

HEAD = 10  # bytes before the Avro body: C3 01 and the schema's fingerprint
RECORDS = int(os.environ["BENCH_RECORDS"])
SCHEMA = parse_schema(json.loads(Path(os.environ["BENCH_SCHEMA"]).read_text()))


class Clicks(Deserializer):  # type: ignore[misc] # the same
    """Reads clicks like the library's own Avro deserializer, after the ten-byte header."""

    def __call__(self, value: bytes, ctx: Any) -> Any:
        return schemaless_reader(BytesIO(value[HEAD:]), SCHEMA, None)


class Counter:
    """The handler."""

    def __init__(self) -> None:
        self._seen = 0

    def count(self, click: Any, state: Any) -> int:
        total: int = state.get("count", 0) + 1
        state.set("count", total)
        return total

    def see(self, click: Any) -> Any:
        """Mark the first and the last record."""
        if not self._seen:
            mark("first")
        self._seen += 1
        if self._seen == RECORDS:
            mark("last")
        return click


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
        os.environ["BENCH_TOPIC"], key_deserializer="str", value_deserializer=Clicks(), config=config
    )
    counter = Counter()
    clicks = app.dataframe(topic).apply(counter.see)
    if os.environ["BENCH_HANDLER"] == "session_count":
        # A session stays open for a second gap after its last record; no setting makes it close like ours.
        clicks.session_window(timedelta(minutes=1), timedelta(seconds=10)).count().current()
    else:
        clicks.apply(counter.count, stateful=True)
    app.run()


if __name__ == "__main__":
    main()
