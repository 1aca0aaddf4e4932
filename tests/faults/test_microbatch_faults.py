"""Micro-batches on a real Kafka and a real Valkey: processes killed between any two steps, and zombies that write late."""

import signal
from typing import cast

import pytest
from tests.faults.arena import wait_until
from tests.faults.aside import ArenaMaker, aside
from tests.faults.batch_arena import PARTITIONS, BatchArena

pytestmark = pytest.mark.faults


@aside
def test_a_process_killed_between_store_and_commit_or_at_any_other_step_doubles_nothing(
    make: ArenaMaker,
) -> str:
    arena = cast("BatchArena", make(BatchArena))
    for step in (
        "rows-written:3",
        "batch-processed:4",
        "ledger-written:2",
        "outputs-produced:3",
        "committed:5",
    ):
        process = arena.start("only", step)
        arena.feed(600)
        assert process.wait_end(60) == -signal.SIGKILL
    arena.start("only")
    arena.feed(200)
    arena.wait_handled()
    assert arena.processes["only"].stop() == 0
    return arena.verify()


@pytest.mark.parametrize("place", ["batch-processed", "rows-written"])
@aside
def test_a_frozen_process_that_writes_late_changes_nothing(make: ArenaMaker, place: str) -> str:
    arena = cast("BatchArena", make(BatchArena))
    zombie = arena.start("zombie", f"stop@{place}:3")
    zombie.wait_log("partition at work")
    arena.feed(600)
    zombie.wait_stopped()
    heir = arena.start("heir")
    arena.feed(600)
    wait_until(lambda: len(heir.at_work()) == PARTITIONS, "the zombie's partitions are with the heir", 60)
    arena.wait_handled()
    zombie.child.resume()
    arena.feed(600)
    wait_until(
        lambda: not zombie.running or zombie.log.count("partitions assigned") > 1,
        "the zombie a member again, or ended",
        60,
    )
    fate = "goes on" if zombie.running else zombie.log.strip().splitlines()[-1]
    arena.wait_handled()
    return f"the zombie {fate}; {arena.verify()}"


@aside
def test_a_store_that_stands_still_past_the_deadline_costs_nothing_but_time(make: ArenaMaker) -> str:
    arena = cast("BatchArena", make(BatchArena))
    process = arena.start("only")
    arena.feed(300)
    arena.wait_handled()
    arena.redis.pause()
    arena.feed(300)
    process.wait_log("commit undone", 60)
    arena.redis.resume()
    arena.feed(300)
    arena.wait_handled()
    assert process.stop() == 0
    return arena.verify()
