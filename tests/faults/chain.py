"""Two chained groups whose handlers check what they see, and a process of either, for the fault tests.

The first group counts the events of each key in its table, and emits each count to a second table. The other reads the
same events, joins the second table, handles the changes of the first, loops each event to the next key, and emits it.
Its rows keep the last number of each kind, and every error for ever. Exits like `worker`.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict

from tests.faults.worker import EXIT_GAVE_UP

from streamtable import (
    App,
    Changes,
    Context,
    Group,
    Input,
    Join,
    Json,
    Kafka,
    Long,
    Loop,
    Output,
    Persist,
    RowChange,
    Stream,
    String,
    Table,
)
from streamtable.errors import StreamtableError
from streamtable.observe import configure_logging

WAIT_SECONDS = 0.3
COMMIT_SECONDS = 0.1


class Seen(TypedDict):
    """The row of the second group: the last number of each kind of record for the key."""

    clicks: int
    looped: int
    changed: int
    marked: int
    wrong: list[str]


def next_keys(keys: Sequence[str]) -> dict[str, str]:
    """Return the key to which the events of each key are looped: all keys form a ring."""
    return dict(zip(keys, [*keys[1:], keys[0]], strict=True))


def seen(ctx: Context[str, Any]) -> Seen:
    row: Seen | None = ctx.value
    return row or {"clicks": 0, "looped": 0, "changed": 0, "marked": 0, "wrong": []}


def follow(row: Seen, number: int, last: int, what: str) -> int:
    """Record an error if the number does not follow the last one. Returns the number."""
    if number != last + 1:
        row["wrong"].append(f"{what} {number} after {last}")
    return number


@dataclass(frozen=True)
class Chain:
    """Both groups.

    Args:
        prefix: The prefix of all names.
        next_key: Returns the key to which the events of a key are looped.
    """

    prefix: str
    next_key: Mapping[str, str]

    def stream(self, name: str) -> Stream[str, int]:
        return Stream(f"{self.prefix}-{name}", key=String(), value=Long())

    @cached_property
    def clicks(self) -> Stream[str, int]:
        return self.stream("input")

    @cached_property
    def marks(self) -> Table[str, int]:
        """Each count, as emitted by the first group's handler."""
        return Table(f"{self.prefix}-marks", key=String(), value=Long())

    @cached_property
    def counts(self) -> Table[str, int]:
        return self.first.table

    @cached_property
    def notices(self) -> Stream[str, int]:
        """Each event, emitted again by the second group."""
        return self.stream("notices")

    @cached_property
    def changes(self) -> Stream[str, Any]:
        """Each change that was handled: its offset, the old count and the new one."""
        return Stream(f"{self.prefix}-changes", key=String(), value=Json())

    @cached_property
    def loop(self) -> Stream[str, int]:
        return self.stream("second-loop")

    @cached_property
    def first(self) -> Group[str, int]:
        return Group(
            f"{self.prefix}-first",
            Input(self.clicks, self._count),
            Output(self.stream("marks")),
            Persist(Long()),
        )

    @cached_property
    def second(self) -> Group[str, Any]:
        return Group(
            f"{self.prefix}-second",
            Input(self.clicks, self._click),
            Loop(self.loop, self._looped),
            Join(self.marks, wait=WAIT_SECONDS),
            Changes(self.counts, self._changed, start="earliest"),
            Output(self.notices),
            Output(self.changes),
            Persist(Json()),
        )

    def _count(self, ctx: Context[str, int], number: int) -> None:
        count = (ctx.value or 0) + 1
        ctx.set(count)
        ctx.emit(self.stream("marks"), ctx.key, count)

    def _row(self, ctx: Context[str, Any]) -> Seen:
        """Return the row, after checking the joined tables' current rows."""
        row = seen(ctx)
        marked, count = ctx.join(self.marks) or 0, ctx.join(self.counts) or 0
        if marked < row["marked"]:
            row["wrong"].append(f"joined {marked} after {row['marked']}")
        row["marked"] = marked
        if count != row["changed"]:
            row["wrong"].append(f"joined {count}, but the last change was to {row['changed']}")
        return row

    def _click(self, ctx: Context[str, Any], number: int) -> None:
        row = self._row(ctx)
        row["clicks"] = follow(row, number, row["clicks"], "event")
        ctx.set(row)
        ctx.emit(self.notices, ctx.key, number)
        ctx.loopback(self.loop, self.next_key[ctx.key], number)

    def _looped(self, ctx: Context[str, Any], number: int) -> None:
        row = self._row(ctx)
        row["looped"] = follow(row, number, row["looped"], "looped")
        ctx.set(row)

    def _changed(self, ctx: Context[str, Any], change: RowChange[int]) -> None:
        # Without `_row`: the joined row is the change itself, and our row is of the previous change.
        row = seen(ctx)
        if (change.old or 0) != row["changed"]:
            row["wrong"].append(f"a change from {change.old}, but the last was to {row['changed']}")
        joined = ctx.join(self.counts)
        if joined != change.new:
            row["wrong"].append(f"joined {joined} in the change to {change.new}")
        row["changed"] = change.new or 0
        ctx.set(row)
        ctx.emit(self.changes, ctx.key, [ctx.offset, change.old, change.new])


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "prefix", "keys", "state", "instance"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--group", choices=["first", "second"], required=True)
    parser.add_argument("--standby", action="store_true")
    parser.add_argument("--failpoint")
    args = parser.parse_args()
    configure_logging("json", "info", sys.stderr)
    chain = Chain(args.prefix, next_keys(Path(args.keys).read_text().split()))
    group: Group[str, Any] = chain.first if args.group == "first" else chain.second
    processor = App(Kafka(args.bootstrap), Path(args.state), memory_bytes=16 << 20).processor(
        group,
        instance_id=args.instance,
        commit_interval=COMMIT_SECONDS,
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
