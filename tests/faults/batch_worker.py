"""One process of a micro-batch over Redis or with embedded rows, to be killed and frozen by the fault tests.

Each batch sends the events that it has seen and, for each key, the row that it read and the one that it leaves: a
chain, if nothing is lost.
"""

import argparse
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.faults.worker import EXIT_GAVE_UP

from microbatch import Batch, BatchProcessor, MicroBatch, Rows, Send
from microbatch.store_settings import service_driver
from streamtable import Json, Kafka, Long, Stream, String
from streamtable.errors import StreamtableError
from streamtable.observe import configure_logging

LAST: Rows[Any] = Rows("last", value=Json())


def graph(name: str) -> MicroBatch:
    """The micro-batch under test; its topics are `<name>-in`, `<name>-seen` and `<name>-chain`."""
    seen: Stream[str, int] = Stream(f"{name}-seen", String(), Long())
    chain: Stream[str, Any] = Stream(f"{name}-chain", String(), Json())

    def link(batch: Batch, send: Send) -> None:
        rows = batch.rows(LAST)
        before = rows.get_many(record.key for record in batch.records)
        for record in batch.records:
            send(seen, record.key, record.value)
        for key in {record.key: None for record in batch.records}:
            rows.put(key, uuid4().hex)
            send(chain, key, [before.get(key), rows.get(key)])

    return MicroBatch(
        name,
        inputs=[Stream(f"{name}-in", String(), Long())],
        process=link,
        outputs=[seen, chain],
        rows=[LAST],
        max_records=200,
        max_wait=0.1,
    )


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "group", "store", "state", "instance"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--failpoint")
    args = parser.parse_args()
    configure_logging("json", "info", sys.stderr)
    processor = BatchProcessor(
        graph(args.group),
        Kafka(args.bootstrap),
        store=service_driver(args.store, args.group),
        state_dir=Path(args.state),
        instance_id=args.instance,
        failpoint=args.failpoint,
    )
    try:
        processor.run()
    except StreamtableError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return EXIT_GAVE_UP
    return 0


if __name__ == "__main__":
    sys.exit(main())
