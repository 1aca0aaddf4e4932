"""A flow with an outer join of streams and a foreign-key join, and a process of it, to be killed and frozen.

Exits like `worker`.
"""

import argparse
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.faults.worker import EXIT_GAVE_UP
from tests.simulation.joins import pair, row_of
from tests.simulation.shape import JoinShape

from streamtable import App, EventTime, Json, Kafka, Long, Stream, String
from streamtable.errors import StreamtableError
from streamtable.flow import Flow
from streamtable.observe import configure_logging

OUTER = JoinShape("outer_join", before=2_000, after=3_000, grace=1_000, keys=0)
LINKED = JoinShape("key_join", 0, 0, 0, keys=6)
BY_PRODUCT = "by-product"
COMMIT_SECONDS = 0.1


def product_of(value: int) -> str:
    """Return the key under which an event of the right stream is a product."""
    return f"k{value % LINKED.keys}"


def flow_of(prefix: str) -> Flow:
    """Return the flow. All its topics begin with the prefix."""
    flow = Flow(f"{prefix}-flow", event_time=EventTime(idle_after=None))
    left, right = (flow.stream(Stream(f"{prefix}-{name}", String(), Long())) for name in ("left", "right"))
    before, after, grace = (timedelta(milliseconds=ms) for ms in (OUTER.before, OUTER.after, OUTER.grace))
    both, linked = (
        Stream[str, Any](f"{prefix}-{name}", key=String(), value=Json()) for name in ("both", "linked")
    )
    left.outer_join("both", right, pair, within=(before, after), grace=grace).to(both)
    products = right.key_by(BY_PRODUCT, product_of, key=String()).map_values(row_of, value=Long())
    rows = left.map_values(row_of, value=Long()).to_table("rows", value=Long())
    others = products.to_table("products", value=Long())
    rows.join("linked", others, pair, on=LINKED.foreign_key, value=Json()).to_stream().to(linked)
    return flow


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "prefix", "state", "instance"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--failpoint")
    given = parser.parse_args()
    configure_logging("json", "info", sys.stderr)
    app = App(Kafka(given.bootstrap), Path(given.state), memory_bytes=16 << 20)
    try:
        app.run(
            flow_of(given.prefix),
            instance_id=given.instance,
            commit_interval=COMMIT_SECONDS,
            failpoint=given.failpoint,
        )
    except StreamtableError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return EXIT_GAVE_UP
    return 0


if __name__ == "__main__":
    sys.exit(main())
