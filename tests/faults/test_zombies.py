"""Processes that are frozen, removed from their group, and resumed."""

import time

import pytest
from tests.faults.arena import Arena, Process, wait_until
from tests.faults.aside import ArenaMaker, aside
from tests.faults.oracle import parts
from tests.faults.worker import EXIT_GAVE_UP

from streamtable.base.types import TopicPartition

TRANSACTION_SECONDS = 12.0  # the producer's 10, and what the broker takes to notice

LOAD_SECONDS = 3.0  # enough for several commits

pytestmark = pytest.mark.faults


def taken_over(arena: Arena, zombie: Process) -> None:
    """Wait until the others have all partitions, although the frozen process still claims some."""
    others = [process for process in arena.processes.values() if process is not zombie]

    def all_there() -> bool:
        return sum(len(process.at_work()) for process in others) == arena.partitions

    wait_until(all_there, "the others have the frozen process's partitions", 40)


def go_on(arena: Arena, zombie: Process) -> str:
    """Resume the zombie, let the rest be handled, check everything. Returns the fate of the zombie."""
    zombie.child.resume()
    arena.feed(arena.events[len(arena.events) * 2 // 3 :])
    fate = wait_fate(zombie)
    if fate != "goes on":
        last = zombie.log.strip().splitlines()[-1]
        assert zombie.returncode == EXIT_GAVE_UP, zombie.log[-2000:]
        assert last.startswith(("Fenced: ", "Fatal: ")), last
        arena.start(zombie.name)
    arena.wait_handled()
    arena.finish()
    arena.verify()
    return fate


def wait_fate(zombie: Process) -> str:
    """Wait until the zombie notices its removal and either rejoins or ends."""
    wait_until(
        lambda: not zombie.running or zombie.log.count("partitions assigned") > 1,
        f"{zombie.name} a member again, or ended",
        40,
    )
    return "goes on" if zombie.running else f"ends: {zombie.log.strip().splitlines()[-1]}"


@aside
def test_a_process_frozen_past_its_session_writes_nothing_when_it_wakes(make: ArenaMaker) -> str:
    arena = make(kind="order")
    first, second, _ = parts(arena.events, 3)
    zombie = arena.start("zombie")
    zombie.wait_joined()
    arena.start("heir")
    arena.feed(first)
    arena.wait_at_work()
    zombie.child.pause()
    arena.feed(second)
    taken_over(arena, zombie)
    return f"the zombie {go_on(arena, zombie)}"


@aside
def test_a_process_whose_input_was_purged_while_it_was_frozen_goes_on_without_its_partitions(
    make: ArenaMaker,
) -> str:
    arena = make(kind="purged")
    first, second, _ = parts(arena.events, 3)
    zombie = arena.start("zombie")
    zombie.wait_joined()
    arena.start("heir")
    arena.feed(first)
    arena.wait_at_work()
    zombie.child.pause()
    arena.feed(second)
    taken_over(arena, zombie)
    cluster = arena.kafka.cluster()
    places = [TopicPartition(arena.input, number) for number in range(arena.partitions)]

    def purged() -> bool:
        return all(low > 0.9 * high for low, high in cluster.watermarks(places).values())

    wait_until(purged, "the heir has purged what the frozen process was about to read", 60)
    cluster.close()
    return f"the zombie {go_on(arena, zombie)}"


@pytest.mark.parametrize(
    "place",
    [
        pytest.param("begun", id="before-it-has-sent-anything", marks=pytest.mark.faults_long),
        pytest.param("changelog-produced", id="with-changes-in-its-queue", marks=pytest.mark.faults_long),
        pytest.param("flushed", id="with-changes-in-the-log", marks=pytest.mark.faults_long),
        pytest.param("offsets-sent", id="with-offsets-in-the-transaction"),
        pytest.param(
            "committed", id="with-a-commit-that-its-disk-has-not-seen", marks=pytest.mark.faults_long
        ),
    ],
)
@aside
def test_a_process_frozen_in_a_commit_past_its_transaction_writes_nothing_when_it_wakes(
    make: ArenaMaker, place: str
) -> str:
    arena = make()
    zombie = frozen_in(arena, place)
    began = time.monotonic()
    arena.start("heir")
    # The heir waits for the pending transaction until the broker aborts it, ten seconds after its start.
    taken_over(arena, zombie)
    arena.wait_handled()
    time.sleep(max(0.0, began + TRANSACTION_SECONDS - time.monotonic()))  # its end is not observable
    return f"the zombie {go_on(arena, zombie)}"


@pytest.mark.parametrize("place", [pytest.param("flushed", marks=pytest.mark.faults_long), "offsets-sent"])
@aside
def test_a_process_that_wakes_after_its_session_but_within_its_transaction_tells_the_truth(
    make: ArenaMaker, place: str
) -> str:
    arena = make()
    zombie = frozen_in(arena, place)
    heir = arena.start("heir")
    # With offsets in the transaction, the heir must wait for it, and the zombie's late commit counts.
    heir.wait_joined()
    return f"the zombie {go_on(arena, zombie)}"


def frozen_in(arena: Arena, place: str) -> Process:
    """Run a process that handles some events and freezes itself in a later commit."""
    first, second, _ = parts(arena.events, 3)
    arena.feed(first)
    zombie = arena.start("zombie", f"stop@{place}:3")
    zombie.wait_log("task started")
    load = arena.load(LOAD_SECONDS, second)
    zombie.wait_stopped()
    load.finish()
    return zombie
