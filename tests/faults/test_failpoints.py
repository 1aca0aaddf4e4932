"""A process that is killed once at every failpoint, then restarted."""

import shutil
import signal

import pytest
from tests.faults.arena import Arena, Process
from tests.faults.aside import ArenaMaker, aside
from tests.faults.oracle import parts

from streamtable.base.failpoint import ALL_STEPS, BATCH_STEPS, COMMIT_STEPS
from streamtable.base.types import TopicPartition
from streamtable.tables.position import TablePosition

pytestmark = pytest.mark.faults

# The pass through the failpoint that kills: not the first one if there are more, so that there is work to lose.
REACHES = dict.fromkeys(COMMIT_STEPS, 4) | {"store-written": 7, "plan-made": 2}
LOAD_SECONDS = 6.0  # enough for that many commits after the process is ready
# Killed after the flush and before the offsets: at least once must count these events again, and does.
COUNTED_TWICE = {"flushed", "offsets-sent"}
MAY_BE_COUNTED_TWICE = COUNTED_TWICE | {"changelog-produced"}
# Micro-batches have their own failpoints, which these groups do not reach: see test_microbatch_faults.py.
CASES = [(place, "exactly_once") for place in ALL_STEPS if place not in BATCH_STEPS] + [
    (place, "at_least_once") for place in COMMIT_STEPS
]
# The others are in the long form: the simulation and the Tester crash the same engine at each of them.
SHORT = {
    ("offsets-sent", "exactly_once"),
    ("committed", "exactly_once"),
    ("copy-loading", "exactly_once"),
    ("offsets-sent", "at_least_once"),
}


@pytest.mark.parametrize(
    ("place", "guarantee"),
    [pytest.param(*case, marks=[] if case in SHORT else [pytest.mark.faults_long]) for case in CASES],
)
@aside
def test_a_kill_at_this_place_loses_and_doubles_nothing_more_than_promised(
    make: ArenaMaker, place: str, guarantee: str
) -> None:
    exactly_once = guarantee == "exactly_once"
    arena = make(guarantee=guarantee, kind="count" if exactly_once else "handler")
    first, second, third = parts(arena.events, 3)
    arena.feed(first)
    process = started(arena, place)
    load = arena.load(LOAD_SECONDS, second)
    provoke(arena, process, place)
    ended = process.wait_end()
    load.finish()
    assert ended == -signal.SIGKILL, f"{place} was not reached: {ended}: {process.log[-2000:]}"
    # With exactly once, an open transaction may be left, which hides the offsets until the next process aborts it.
    uncommitted = 0 if exactly_once else arena.unhandled()
    counted_ahead = not exactly_once and is_ahead(arena)
    arena.feed(third)
    again = arena.start(process.name)
    arena.wait_handled()
    arena.finish()
    twice_max = uncommitted if place in MAY_BE_COUNTED_TWICE else 0
    if not exactly_once:
        # Rows of a commit that a slow broker did not acknowledge in time may be stored, and their events are repeated.
        twice_max += len(arena.events) * again.log.count("commit aborted")
    verdict = arena.verify(over_max=twice_max)
    if counted_ahead and place in COUNTED_TWICE:
        assert verdict.over > 0, "the changelog held counts of events that were then counted again"


def is_ahead(arena: Arena) -> bool:
    """Return whether the changelog has changes by uncommitted events (the commit may have been of offsets only)."""
    committed = arena.committed()
    for place, (_, end) in arena.cluster.watermarks(arena.places(arena.group.table.name)).items():
        offset = committed[TopicPartition(arena.input, place.partition)]
        position = TablePosition.decode(offset.metadata) if offset is not None else None
        if end > (position.changelog if position is not None else 0):
            return True
    return False


def started(arena: Arena, place: str) -> Process:
    """Return the process to kill; for failpoints in recovery, one that has lost its disk."""
    spec = f"{place}:{REACHES.get(place, 1)}"
    if not place.startswith("copy-"):
        return arena.start("a", spec)
    process = arena.start("a")
    arena.wait_handled()
    arena.wait_at_work()
    process.stop()
    shutil.rmtree(process.state)
    return arena.start("a", spec)


def provoke(arena: Arena, process: Process, place: str) -> None:
    """Make the process reach the failpoint, if it does not by itself."""
    if place == "revoked-committed":
        process.wait_log("task started")
        arena.start("b")
    elif place in {"closing", "store-closed"}:
        process.wait_log("task started")
        process.child.signal_stop()
