"""A sink on a real Kafka and a real PostgreSQL: processes killed at any step, a server that is aborted, zombies that write late."""

import random
import signal
from typing import cast

import pytest
from tests.faults.arena import wait_until
from tests.faults.aside import ArenaMaker, aside
from tests.faults.batch_arena import PARTITIONS
from tests.faults.sink_arena import DisturbedSinkArena, IcebergArena, S3Arena, SinkArena

pytestmark = pytest.mark.faults
STEPS = ("rows-written", "batch-processed", "ledger-read", "ledger-written", "offsets-sent", "committed")


@aside
def test_a_sink_killed_before_and_after_its_database_commits_writes_each_record_once(make: ArenaMaker) -> str:
    arena = cast("SinkArena", make(SinkArena))
    for step in ("rows-written:3", "batch-processed:4", "committed:1"):
        process = arena.start("only", step)
        arena.feed(600)
        assert process.wait_end(60) == -signal.SIGKILL
    arena.start("only")
    arena.feed(200)
    arena.wait_handled()
    assert arena.processes["only"].stop() == 0
    return arena.verify()


@aside
def test_a_frozen_sink_that_goes_on_after_its_session_writes_nothing_twice(make: ArenaMaker) -> str:
    arena = cast("SinkArena", make(SinkArena))
    return frozen(arena, "batch-processed:3")


def frozen(arena: SinkArena, step: str) -> str:
    """Freeze a sink at a step until another one has its partitions, then let it go on."""
    zombie = arena.start("zombie", f"stop@{step}")
    arena.feed(600)
    zombie.wait_stopped(60)
    heir = arena.start("heir")
    arena.feed(600)
    wait_until(lambda: len(heir.at_work()) == PARTITIONS, "the heir has the zombie's partitions", 90)
    arena.wait_handled()
    zombie.child.resume()
    arena.feed(600)
    wait_until(
        lambda: not zombie.running or zombie.log.count("partitions assigned") > 1,
        "the zombie a member again, or ended",
        60,
    )
    arena.wait_handled()
    return arena.verify()


@pytest.mark.faults_long("twenty kills, aborts of the server between them, and two freezes")
@aside
def test_twenty_kills_aborts_of_the_server_and_two_freezes_lose_and_double_nothing(
    make: ArenaMaker, seed: int
) -> str:
    arena = cast("SinkArena", make(SinkArena))
    chance = random.Random(seed)
    for number in range(20):
        process = arena.start("only", f"{chance.choice(STEPS)}:{chance.randint(1, 4)}")

        def ended(process: object = process) -> bool:
            arena.feed(60)
            return not arena.processes["only"].running

        wait_until(ended, "killed", 90)
        if number % 5 == 4:
            arena.database.stop_immediately()
            arena.database.start()
    arena.start("only")
    arena.wait_handled()
    assert arena.processes["only"].stop() == 0
    frozen(arena, "rows-written:3")
    arena.processes["zombie"].kill()
    arena.processes["heir"].stop()
    return frozen(arena, "ledger-read:2")


TARGETS = pytest.mark.parametrize("kind", [DisturbedSinkArena, S3Arena, IcebergArena])
KILLS = 5


@pytest.mark.faults_long("random kills, two freezes, ended sessions and lost answers, for each target")
@TARGETS
@aside
def test_random_kills_freezes_and_lost_answers_lose_and_double_nothing_in_any_target(
    make: ArenaMaker, seed: int, kind: type[SinkArena]
) -> str:
    arena = cast("SinkArena", make(kind))
    chance = random.Random(seed)
    for _ in range(KILLS):
        arena.start("only", f"{chance.choice(STEPS)}:{chance.randint(1, 4)}")

        def ended() -> bool:
            arena.feed(60)
            arena.disturb(chance)
            return not arena.processes["only"].running

        wait_until(ended, "killed", 180)
    arena.start("only")
    arena.wait_handled(180)
    assert arena.processes["only"].stop() == 0
    frozen(arena, "batch-processed:3")
    arena.processes["zombie"].kill()
    arena.processes["heir"].stop()
    return frozen(arena, f"{chance.choice(STEPS)}:2")


@pytest.mark.faults_long("a freeze without the comparison of positions and epochs, for each target")
@TARGETS
@aside
def test_a_frozen_sink_without_the_comparison_of_positions_and_epochs_doubles_rows_in_any_target(
    make: ArenaMaker, kind: type[SinkArena]
) -> None:
    arena = cast("SinkArena", make(kind))
    arena.make_blind()
    with pytest.raises(AssertionError, match=r"doubled Counter\(\{"):
        frozen(arena, "batch-processed:3")
