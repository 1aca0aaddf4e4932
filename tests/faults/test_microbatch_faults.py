"""Micro-batches on a real Kafka, over a real Valkey or RocksDB: processes killed between any two steps, and zombies that write late."""

import signal
from typing import cast

import pytest
from tests.faults.arena import Process, wait_until
from tests.faults.aside import ArenaMaker, aside
from tests.faults.batch_arena import PARTITIONS, BatchArena, EmbeddedArena

from streamtable.base.failpoint import COMMIT_STEPS

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


@pytest.mark.faults_long(
    "eight kills, one after another; the Tester crashes the same engine between any two steps"
)
@aside
def test_embedded_rows_count_once_though_the_process_is_killed_at_each_step_and_loses_its_disk(
    make: ArenaMaker,
) -> str:
    arena = cast("EmbeddedArena", make(EmbeddedArena))
    for number, step in enumerate(("batch-processed", *COMMIT_STEPS)):
        process = arena.start("only", f"{step}:4")

        def killed(process: Process = process) -> bool:
            arena.feed(60)
            return not process.running

        wait_until(killed, f"killed at {step}", 60)
        assert process.wait_end(10) == -signal.SIGKILL
        if number % 3 == 1:
            arena.lose_disk("only")
    arena.start("only")
    arena.feed(200)
    arena.wait_handled()
    assert arena.processes["only"].stop() == 0
    return arena.verify()


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        pytest.param("batch-processed", BatchArena, marks=pytest.mark.faults_long),
        ("rows-written", BatchArena),
        pytest.param("batch-processed", EmbeddedArena, marks=pytest.mark.faults_long),
        pytest.param("changelog-produced", EmbeddedArena, marks=pytest.mark.faults_long),
    ],
)
@aside
def test_a_frozen_process_that_writes_late_changes_nothing(
    make: ArenaMaker, place: str, kind: type[BatchArena]
) -> str:
    arena = cast("BatchArena", make(kind))
    zombie = arena.start("zombie", f"stop@{place}:3")
    zombie.wait_log("task started")
    arena.feed(600)
    zombie.wait_stopped()
    heir = arena.start("heir")
    arena.feed(600)
    wait_until(lambda: len(heir.at_work()) == PARTITIONS, "the heir has the zombie's partitions", 60)
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


@pytest.mark.faults_long("the deadline of a store passes; test_network.py has stores that do not answer")
@aside
def test_a_store_that_stands_still_past_the_deadline_costs_nothing_but_time(make: ArenaMaker) -> str:
    arena = cast("BatchArena", make(BatchArena))
    process = arena.start("only")
    arena.feed(300)
    arena.wait_handled()
    arena.redis.pause()
    arena.feed(300)
    process.wait_log("commit aborted", 60)
    arena.redis.resume()
    arena.feed(300)
    arena.wait_handled()
    assert process.stop() == 0
    return arena.verify()
