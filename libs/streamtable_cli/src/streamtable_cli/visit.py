"""`streamtable visit`: runs a handler for every row of a group's table and shows its progress."""

import shlex
import time
import uuid
from dataclasses import dataclass, field
from typing import Annotated

import typer
from rich.progress import BarColumn, TextColumn

from streamtable.base.topics import legal_name
from streamtable.base.types import TopicPartition
from streamtable.errors import RetryLater, StreamtableError
from streamtable_admin.cluster import Cluster
from streamtable_admin.errors import NotFound, Refused
from streamtable_admin.reading import follow
from streamtable_admin.text import count
from streamtable_cli.modules import load_group
from streamtable_cli.output import AsJson, note, show_json, show_table
from streamtable_cli.session import session_of
from streamtable_cli.terminal import bar
from streamtable_cli.visits import Run, follow_run, rows_at_most, start, states_document


class GivenUp(StreamtableError):
    """A visit that cannot be finished. Exit code 1."""


LOOK_S = 2.0
"""The seconds without progress after which the members of the group are checked."""
RUN_CHARS_MAX = 100


def visit(
    ctx: typer.Context,
    group: Annotated[
        str,
        typer.Argument(
            metavar="GROUP",
            help="MODULE:NAME, as for `graph show`; or a group's name, which does not show its visits.",
        ),
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the visit in the graph.")],
    *,
    argument: Annotated[str | None, typer.Option(metavar="TEXT", help="Argument for the handler.")] = None,
    run: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Id of this run. A run that was started before is not started again, only watched, as long as the "
            "topic keeps its records. Default: a new id.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a visit's handler for every row of the group's table, and watch it until all partitions are done.

    The group's processes do the work, 1,000 rows of each partition at a time, interleaved with new records. Ctrl-C ends
    the watching, not the visit; `--run ID` watches it again. Exit code 0 when all partitions are done.
    """
    session = session_of(ctx)
    group_name = _group_name(group, name)
    legal_name(name, "visit")
    if run is not None and not (run.isprintable() and 0 < len(run) <= RUN_CHARS_MAX):
        raise Refused(f"--run: expected 1 to {RUN_CHARS_MAX} printable characters")
    found = Run(run or uuid.uuid4().hex[:12], name, argument or "")
    with session.cluster() as cluster:
        topic = f"{group_name}-visits"
        partitions = cluster.admin.topic_partitions().get(topic)
        if partitions is None:
            raise NotFound(
                f"there is no topic {topic!r}: declare `visits: true` for the group, and run `streamtable topics apply`"
            )
        places = cluster.partitions(topic)
        started = start(cluster, group_name, found, places, made_up=run is None)
        what = f"visit {name!r} of {group_name}, run {found.run}"
        note(f"{what}: {'started' if started else 'was started before'}, {count(partitions, 'partition')}")
        watching = Watching(cluster, group_name, found)
        try:
            watching.until_done()
        except (KeyboardInterrupt, RetryLater):
            if watching.blocked:
                note(watching.blocked)
            note("the visit continues without this command; watch it again with:")
            asked = [] if argument is None else ["--argument", argument]
            note(f"  {shlex.join(['streamtable', 'visit', group, name, '--run', found.run, *asked])}")
            raise
        finally:
            if as_json:
                show_json(states_document(found))
    if not as_json:
        show_table(
            ("partition", "rows visited"),
            ((number, state.visited) for number, state in sorted(found.states.items())),
        )
    note(f"done: {count(found.visited, 'row')} visited")


def _group_name(group: str, visit: str) -> str:
    if ":" not in group:
        return legal_name(group, "group")
    loaded = load_group(group)
    names = [each.name for each in loaded.visits]
    if visit not in names:
        there = f"it has {', '.join(names)}" if names else "its graph has no Visit edge"
        raise NotFound(f"group {loaded.name!r} has no visit {visit!r}: {there}")
    return loaded.name


@dataclass
class Watching:
    """A run being watched.

    Attributes:
        blocked: The reason why the visit cannot make progress at present; "" if none is known.
    """

    cluster: Cluster
    group: str
    run: Run
    blocked: str = ""
    _passed: dict[int, int] = field(default_factory=dict)

    def until_done(self) -> None:
        """Wait for all partitions. Raises `RetryLater` if Kafka stops answering, `GivenUp` if a partition is stuck."""
        if self.run.done:
            return
        most = rows_at_most(self.cluster, f"{self.group}-table")
        looked_at = float("-inf")
        with bar(TextColumn("visiting"), BarColumn(), TextColumn("{task.description}")) as progress:
            task = progress.add_task("", total=max(most, 1))
            for moved in follow_run(self.run, follow(self.cluster, self.run.reached)):
                if moved:
                    self.blocked = ""
                    looked_at = time.monotonic()
                    progress.update(task, completed=self.run.visited, description=self._said(most))
                elif time.monotonic() - looked_at > LOOK_S:
                    self._look()
                    looked_at = time.monotonic()

    def _said(self, most: int) -> str:
        left = len(self.run.open_partitions)
        done = f"{len(self.run.states) - left} of {count(len(self.run.states), 'partition')} done"
        return f"{self.run.visited} of at most {most} rows, {done}"

    def _look(self) -> None:
        """Check whether a member can do the work, and report when that changes."""
        topic = f"{self.group}-visits"
        found = self.cluster.describe_groups([self.group]).get(self.group)
        why = ""
        if found is None or not found.members:
            why = f"no member of group {self.group!r} is alive: the visit continues when one is started"
        elif not any(place.topic == topic for each in found.members for place in each.partitions):
            why = f"no member of group {self.group!r} reads {topic!r} (yet): is it a version that has this visit?"
        # Stored before it is printed: Ctrl-C may come as soon as the line is visible, and the reason is then printed again.
        news, self.blocked = why != self.blocked, why
        if why and news:
            note(why)
        self._refuse_given_up(topic)

    def _refuse_given_up(self, topic: str) -> None:
        """Raise `GivenUp` for a partition that the group has passed without progress, because the handler failed."""
        places = [TopicPartition(topic, number) for number in self.run.open_partitions]
        asked = self.cluster.retried(lambda: self.cluster.admin.stable_offsets(self.group, places))
        passed = {
            number: offset
            for (_, number), committed in asked.items()
            if (offset := self.run.offsets.get(number)) is not None
            and committed
            and committed.next_offset > offset
        }
        # Only after two looks, as a record with progress may have been in flight at the first.
        given_up = [number for number, offset in passed.items() if self._passed.get(number) == offset]
        self._passed = passed
        if given_up:
            raise GivenUp(
                f"the visit has ended before the last row in {count(len(given_up), 'partition')} "
                f"({', '.join(map(str, given_up))}): its handler failed, or the running version has no visit "
                f"{self.run.visit!r}; see `streamtable dead-letters list {self.group}`. Solve this, then start a new run"
            )
