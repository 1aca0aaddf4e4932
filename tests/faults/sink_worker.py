"""One process of a sink to PostgreSQL, S3 or Iceberg, to be killed and frozen by the fault tests.

Its store is the URL of a PostgreSQL, `s3:` and the URL of an S3 server, or `iceberg:` and a folder; with `blind+` before it, it
writes without the comparison of positions and epochs.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from tests.faults.worker import EXIT_GAVE_UP

from streamtable import App, Kafka, Long, Stream, String
from streamtable.errors import StreamtableError
from streamtable.observe import configure_logging
from streamtable_sinks import Sink, SinkChange, SinkPartition, SinkSource, SinkTarget, TakenPartition
from streamtable_sinks.postgres import Postgres

TABLE = "CREATE TABLE seen (serial bigserial PRIMARY KEY, key text, value bigint)"


LAKES = ("s3:", "iceberg:")
BLIND = "blind+"


class Blind:
    """Writes at any position and under any epoch: what a target without the two comparisons would do."""

    def __init__(self, target: SinkTarget) -> None:
        self._target = target

    def open(self, source: SinkSource) -> None:
        self._target.open(source)

    def take(self, place: SinkPartition, owner: str) -> TakenPartition:
        return self._target.take(place, owner)

    def write(
        self, place: SinkPartition, epoch: int, start: int | None, end: int, changes: Sequence[SinkChange]
    ) -> None:
        present = self._target.take(place, "blind").epoch
        self._target.write(place, present, None, end, changes)

    def close(self) -> None:
        self._target.close()


def graph(name: str, store: str) -> Sink:
    """The sink under test, which appends the events of `<name>-in`."""
    events = Stream(f"{name}-in", String(), Long())
    target = target_of(store.removeprefix(BLIND))
    return Sink(
        name, events, Blind(target) if store.startswith(BLIND) else target, max_records=200, max_wait=0.1
    )


def target_of(store: str) -> SinkTarget:
    if store.startswith(LAKES):
        # Arrow starts threads when it is imported, which a process that others are forked from must not have.
        from tests.faults.sink_lakes import lake_of  # noqa: PLC0415

        return lake_of(store, _columns)
    return Postgres(store, "seen", columns=_columns, lock_timeout=1.0)


def _columns(key: Any, value: Any) -> dict[str, Any]:
    return {"key": key, "value": value}


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "group", "store", "state", "instance"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--failpoint")
    args = parser.parse_args()
    configure_logging("json", "info", sys.stderr)
    app = App(Kafka(args.bootstrap), args.state)
    try:
        app.run(graph(args.group, args.store), instance_id=args.instance, failpoint=args.failpoint)
    except StreamtableError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return EXIT_GAVE_UP
    return 0


if __name__ == "__main__":
    sys.exit(main())
