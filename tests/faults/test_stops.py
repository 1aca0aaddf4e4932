"""Graceful shutdown: processes that get SIGTERM at any point leave in order and quickly."""

import time

import pytest
from tests.faults.arena import Arena
from tests.faults.aside import ArenaMaker, aside
from tests.faults.oracle import parts

from streamtable.base.failpoint import RECOVERY_STEPS
from streamtable.store.rocksdb import RocksStores

pytestmark = pytest.mark.faults

GRACE_SECONDS = 30  # what a service is given by default


def assert_released(arena: Arena, name: str) -> None:
    """Check that another process can open the stores of this one."""
    stores = RocksStores(arena.processes[name].state / arena.group.name)
    for table, partition in stores.present():
        stores.open(table, partition)
    stores.close()


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(place, marks=[] if place == "copy-loading" else [pytest.mark.faults_long])
        for place in RECOVERY_STEPS
    ],
)
@aside
def test_a_process_that_is_stopped_while_it_recovers_leaves_in_order(make: ArenaMaker, place: str) -> None:
    arena = make()
    first, second = parts(arena.events, 2)
    # A second, empty disk: all tables are restored. The partitions of a new group are committed first.
    if place != "new-partition-committed":
        arena.feed(first)
        arena.start("before")
        arena.wait_handled()
        arena.finish()
    process = arena.start("a", f"stop@{place}")
    process.wait_stopped()
    assert process.stop(GRACE_SECONDS) == 0, process.log[-2000:]
    assert_released(arena, "a")
    if place == "new-partition-committed":
        arena.feed(first)
    arena.feed(second)
    process.start()
    arena.wait_handled()
    arena.finish()
    arena.verify()


@aside
def test_a_process_that_is_stopped_under_load_commits_what_it_has_handled(make: ArenaMaker) -> str:
    arena = make(kind="order", events=12_000)
    process = arena.start("a")
    arena.wait_at_work()
    load = arena.load(8)
    arena.wait_begun()
    began = time.monotonic()
    assert process.stop(GRACE_SECONDS) == 0, process.log[-2000:]
    took = time.monotonic() - began
    assert_released(arena, "a")
    process.start()
    load.finish()
    arena.wait_handled()
    arena.finish()
    arena.verify()
    return f"it took {took:.1f} s"
