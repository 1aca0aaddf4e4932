"""One process of a sink to PostgreSQL, to be killed and frozen by the fault tests."""

import argparse
import sys

from tests.faults.worker import EXIT_GAVE_UP

from streamtable import App, Kafka, Long, Stream, String
from streamtable.errors import StreamtableError
from streamtable.observe import configure_logging
from streamtable_sinks import Sink
from streamtable_sinks.postgres import Postgres

TABLE = "CREATE TABLE seen (serial bigserial PRIMARY KEY, key text, value bigint)"


def graph(name: str, url: str) -> Sink:
    """The sink under test, which appends the events of `<name>-in`."""
    events = Stream(f"{name}-in", String(), Long())
    target = Postgres(url, "seen", columns=lambda key, value: {"key": key, "value": value}, lock_timeout=1.0)
    return Sink(name, events, target, max_records=200, max_wait=0.1)


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
