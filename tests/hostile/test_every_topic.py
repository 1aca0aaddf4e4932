"""No record that can be written to a topic of the services stops another one, in any scenario."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest
from tests.hostile.hostile_topics import RUNNING, Hostile, Place, Stack, input_topics

from click_count.topics import USER_CLICKS
from contracts.records import UserClick, UserStatusUpdate
from localkafka.fixtures import OwnBroker
from streamtable import Avro
from user_status.topics import UPDATES

SEEDS = 10
EACH = 4  # hostile records a topic and seed
HONEST_USERS = 20
COUNT = Avro("long")


@pytest.fixture
def stack(own_broker: OwnBroker, tmp_path: Path) -> Iterator[Stack]:
    with ExitStack() as running:
        yield Stack(own_broker(), tmp_path, running)


def send_honest(stack: Stack, seed: int) -> None:
    """One click and one status of each honest user."""
    for number in range(HONEST_USERS):
        user = f"honest-{number}"
        click = UserClick(
            id=f"{user}-{seed}", user_id=user, url="https://example.org", at=1_700_000_000_000 + seed
        )
        update = UserStatusUpdate(
            id=f"{user}-{seed}", user_id=user, status=f"at {seed}", at=1_700_000_000_000 + seed
        )
        stack.produce(USER_CLICKS.name, user, USER_CLICKS.value.encode(click))
        stack.produce(UPDATES.name, user, UPDATES.value.encode(update))
    stack.flush()


def expected_dead_letters(attacks: list[tuple[Hostile, Place]]) -> dict[str, set[Place]]:
    """The records of ordinary inputs that no handler may see, by group."""
    readers = input_topics()
    joined = {edge.table.name for group in RUNNING for edge in group.joins}
    expected: dict[str, set[Place]] = {group.name: set() for group in RUNNING}
    for hostile, place in attacks:
        # Rows of a joined table are kept as they are; a record in a retry topic is described by its own headers.
        if hostile.readable or hostile.topic in joined or hostile.topic.endswith("-retry"):
            continue
        for group in readers[hostile.topic]:
            expected[group.name].add(place)
    return expected


def attack(stack: Stack, seeds: int) -> None:
    """Check that the honest records between hostile ones are handled, and which of the hostile ones are dead letters."""
    attacks: list[tuple[Hostile, Place]] = []
    send_honest(stack, 0)
    stack.wait_handled()  # a group that has never committed refuses a changelog that holds rows of others
    for seed in range(seeds):
        attacks += stack.attack(Random(seed), EACH)
        send_honest(stack, seed + 1)
    stack.wait_handled()
    stack.check_alive()

    counts = stack.rows("click-count-table")
    honest = {f"honest-{number}".encode() for number in range(HONEST_USERS)}
    assert {COUNT.decode(counts[user]) for user in honest} == {seeds + 1}
    statuses = stack.rows("user-status-table")
    assert honest <= statuses.keys()
    expected = expected_dead_letters(attacks)
    for group in RUNNING:
        letters = stack.dead_letters(group)
        assert expected[group.name] <= letters.keys(), group.name
        assert {letters[place] for place in expected[group.name]} <= {1}, group.name


@pytest.mark.faults_long(
    "nine processes, and hostile records for each of their topics; test_kafka_messages.py has one group"
)
@pytest.mark.timeout(1200)
def test_hostile_records_in_every_topic_stop_no_processor_and_each_unreadable_one_is_a_dead_letter_once(
    stack: Stack,
) -> None:
    attack(stack, SEEDS)
