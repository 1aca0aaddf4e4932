"""A processor with limited memory that is slower than its input, for the memory tests.

After SIGTERM it commits handled records and exits with 0.
"""

import argparse
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streamtable import App, Avro, Count, Group, Input, Kafka, Persist, Stream, String
from streamtable.handlers.aggregate_rows import AggregateRows
from streamtable.observe import configure_logging

RECORD_SECONDS = 4e-6


class SlowCount(Count):
    """Counts more slowly than the client fetches."""

    def fold(self, rows: AggregateRows[int], keys: Sequence[bytes], events: Sequence[Any]) -> None:
        super().fold(rows, keys, events)
        time.sleep(len(keys) * RECORD_SECONDS)


def group(name: str, topic: str) -> Group[str, int]:
    """Counts the records of each key."""
    stream = Stream(topic, String(), String())
    return Group(name, Input(stream, aggregate=SlowCount()), Persist(Avro("long")))


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "group", "topic", "state"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--data-bytes", type=int, required=True)
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_DATA, (given.data_bytes, given.data_bytes))
    configure_logging("json", "info", sys.stderr)
    App(Kafka(given.bootstrap), Path(given.state)).processor(
        group(given.group, given.topic), instance_id="slow"
    ).run()


if __name__ == "__main__":
    main()
