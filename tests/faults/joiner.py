"""A flow that joins two streams, one of them without records, for the memory tests. Exits with 0 after SIGTERM."""

import argparse
import sys
from datetime import timedelta
from pathlib import Path

from streamtable import App, EventTime, Kafka, Stream, String
from streamtable.flow import Flow
from streamtable.observe import configure_logging

DAY = timedelta(days=1)


def joined(name: str, left: str, right: str, out: str) -> Flow:
    """Return the flow: records of the left stream wait for a day."""
    flow = Flow(name, event_time=EventTime(idle_after=None))
    lefts = flow.stream(Stream(left, String(), String()))
    rights = flow.stream(Stream(right, String(), String()))
    both = lefts.left_join("both", rights, lambda one, other: f"{one}+{other}", within=DAY, grace=DAY)
    both.to(Stream(out, String(), String()))
    return flow


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "flow", "left", "right", "out", "state"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    configure_logging("json", "info", sys.stderr)
    flow = joined(given.flow, given.left, given.right, given.out)
    App(Kafka(given.bootstrap), Path(given.state)).processor(flow.group(), instance_id="joiner").run()


if __name__ == "__main__":
    main()
