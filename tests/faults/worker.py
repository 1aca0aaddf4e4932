"""One process of a group, to be killed and frozen by the fault tests.

Exits with code 3 and a last line `<class of error>: <message>` if the processor gives up, and with 0 after SIGTERM.
"""

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import Any, Literal

from tests.faults.oracle import OrderRow, follow

from streamtable import (
    App,
    Avro,
    Context,
    Count,
    Group,
    Guarantee,
    Input,
    Json,
    Kafka,
    Long,
    Persist,
    State,
    Stream,
    String,
)
from streamtable.errors import StreamtableError
from streamtable.observe import configure_logging

EXIT_GAVE_UP = 3
KINDS = ("count", "handler", "purged", "order", "states", "fatal")
TOTALS = State("totals", key=String(), value=Long())
"""A state table used as the table of a group of the kind `states`."""
THIRDS = State("thirds", key=String(), value=Long())
"""A state table with a row for each third of the numbers."""
FATAL = -1
"""The event that crashes a process of the kind `fatal`, like a crashing decoder."""


def add_one(ctx: Context[str, int], number: int) -> None:
    ctx.set((ctx.value or 0) + 1)


def check_order(ctx: Context[str, Any], number: int) -> None:
    row: OrderRow | None = ctx.value
    ctx.set(follow(row, number))


def add_one_to_each(ctx: Context[str, int], number: int) -> None:
    add_one(ctx, number)
    for state, key in ((TOTALS, ctx.key), (THIRDS, f"{ctx.key} {number % 3}")):
        table = ctx.table(state)
        table.put(key, (table.get(key) or 0) + 1)


def add_one_or_die(ctx: Context[str, int], number: int) -> None:
    if number == FATAL:
        os.kill(os.getpid(), signal.SIGSEGV)
    add_one(ctx, number)


def stream(topic: str) -> Stream[str, int]:
    """Return the input stream of the group: numbered events."""
    return Stream(topic, key=String(), value=Long())


def group(kind: str, name: str, topic: str) -> Group[str, Any]:
    """The group under test: a built-in aggregate, a handler, or a handler that checks the order of its events."""
    if kind == "count":
        return Group(name, Input(stream(topic), aggregate=Count()), Persist(Avro("long")))
    if kind == "handler":
        return Group(name, Input(stream(topic), add_one), Persist(Long()))
    if kind == "purged":
        return Group(name, Input(stream(topic), add_one, purge=True), Persist(Long()))
    if kind == "states":
        return Group(name, Input(stream(topic), add_one_to_each), Persist(Long()), TOTALS, THIRDS)
    if kind == "fatal":
        return Group(name, Input(stream(topic), add_one_or_die), Persist(Long()))
    return Group(name, Input(stream(topic), check_order), Persist(Json()))


def kafka(bootstrap_servers: str, protocol: Literal["consumer", "classic"], *, static: bool) -> Kafka:
    """Return the cluster. In the classic protocol, the member and not the broker sets the session timeout."""
    options = {"session.timeout.ms": "3000", "heartbeat.interval.ms": "500"} if protocol == "classic" else {}
    return Kafka(bootstrap_servers, options, group_protocol=protocol, static_membership=static)


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "group", "topic", "state", "instance"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--kind", choices=KINDS, default="count")
    parser.add_argument("--guarantee", default="exactly_once")
    parser.add_argument("--commit-interval", type=float, default=0.1)
    parser.add_argument("--standby", action="store_true")
    parser.add_argument("--protocol", choices=["consumer", "classic"], default="consumer")
    parser.add_argument("--static", action="store_true")
    parser.add_argument("--failpoint")
    args = parser.parse_args()
    configure_logging("json", "info", sys.stderr)
    processor = App(
        kafka(args.bootstrap, args.protocol, static=args.static), Path(args.state), memory_bytes=16 << 20
    ).processor(
        group(args.kind, args.group, args.topic),
        instance_id=args.instance,
        guarantee=Guarantee(args.guarantee),
        commit_interval=args.commit_interval,
        standby=args.standby,
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
