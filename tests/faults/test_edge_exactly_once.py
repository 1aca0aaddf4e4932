"""Exactly once from client to count: whatever freezes, crashes or is lost, responses and topic never contradict each other."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from tests.faults.aside import aside
from tests.faults.edge_arena import ATTACKS, EdgeArena
from tests.faults.faulty_edge import PLANTS

ROUNDS: Final = int(os.environ.get("FAULTS_EDGE_ROUNDS", "200"))


def check(arena: EdgeArena) -> str:
    """Compare all responses with the topic and the table. Returns a line for the summary."""
    ledger = arena.ledger
    assert ledger.wrong == []
    records = arena.in_topic()
    stored = set(records)
    assert ledger.accepted - stored == set(), "accepted, and not in the topic"
    assert stored - (ledger.accepted | ledger.unknown) == set(), "in the topic, and no answer has said so"
    never_sent = ledger.sent - ledger.accepted - ledger.unknown
    assert never_sent & stored == set(), "answered as not sent, and in the topic"
    counted = arena.counted(len(stored))
    assert len(ledger.accepted) <= counted <= len(ledger.sent)
    assert counted == len(stored)
    return (
        f"{len(ledger.sent)} clicks sent, {len(ledger.accepted)} accepted, {len(stored)} stored in {len(records)} "
        f"records, {counted} counted; {ledger.not_sent} times one was not sent, {len(never_sent)} were never; "
        f"answers by status {ledger.answers}"
    )


@pytest.mark.faults
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "attacks",
    [
        ("kill", "lost answers"),
        pytest.param(
            ("long freeze", "kill", "lost answers", "late answers", "lost http answers"),
            marks=pytest.mark.faults_long,
        ),
    ],
    ids=len,
)
@aside
def test_answers_and_topic_agree_when_the_broker_freezes_dies_or_loses_answers(
    folder: Path, seed: int, attacks: tuple[str, ...]
) -> str:
    with EdgeArena(folder, seed) as arena:
        for attack in attacks:
            arena.round(attack)
        return check(arena)


@pytest.mark.faults_long
@pytest.mark.timeout(7200)
def test_answers_topic_and_count_agree_after_many_random_attacks(
    folder: Path, seed: int, tell: Callable[[str], None]
) -> None:
    with EdgeArena(folder, seed) as arena:
        for _ in range(ROUNDS):
            arena.round(arena.random.choice(ATTACKS))
        tell(check(arena))


@pytest.mark.faults_long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("plant", PLANTS)
def test_a_fault_that_is_planted_in_the_edge_is_found(folder: Path, seed: int, plant: str) -> None:
    # A client that gives up unsent clicks detects that they were sent; one that retries detects that they counted twice.
    patience = 0.0 if plant == "sends_after_it_has_said_not_sent" else 0.7
    with EdgeArena(folder, seed, plant, settled_seconds=15, patience=patience) as arena:
        for attack in ("long freeze", "kill", "lost answers", "lost http answers"):
            arena.round(attack)
        try:
            said = check(arena)
        except AssertionError:
            return
    pytest.fail(f"the bug was not found: {said}")
