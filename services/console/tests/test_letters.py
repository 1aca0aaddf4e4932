"""The list of dead letters within the limits of a request, on the virtual Kafka."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from console import letters
from console.letters import DeadLetters
from streamtable.base.deadletter import (
    ORIGIN_OFFSET,
    ORIGIN_PARTITION,
    ORIGIN_TOPIC,
    replayed_marker,
)
from streamtable_admin.cluster import Cluster
from streamtable_admin.reading import POLL_RECORDS, ReadLimits
from streamtable_testing.clock import VirtualClock
from streamtable_testing.log import VirtualKafka

TOPIC = "g-dead-letters"
CUT_OFF = ReadLimits(total=0.0)
"""A read ends after its first poll."""


class Admin:
    """The questions that a list asks."""

    def __init__(self, kafka: VirtualKafka) -> None:
        self._kafka = kafka

    def topic_partitions(self) -> dict[str, int]:
        return {TOPIC: 1}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kafka.cluster(), name)


class Bench:
    """The letters of one partition."""

    def __init__(self) -> None:
        self.kafka = VirtualKafka(VirtualClock())
        self.kafka.create_topic(TOPIC, 1)
        made: Any = self
        self.shown = DeadLetters(made)

    @contextmanager
    def connected(self) -> Iterator[Cluster]:
        kafka: Any = self.kafka
        admin: Any = Admin(self.kafka)
        yield Cluster(kafka, admin)

    def add(self, number: int) -> None:
        """Write letters."""
        for offset in range(number):
            headers = [(ORIGIN_TOPIC, b"in"), (ORIGIN_PARTITION, b"0"), (ORIGIN_OFFSET, b"%d" % offset)]
            self.kafka.append(TOPIC, b"k", b"v", partition=0, headers=headers)

    def replay(self, offsets: range) -> None:
        """Write the markers of replayed letters."""
        for offset in offsets:
            made = replayed_marker(TOPIC, 0, offset, group="g", now=1.0)
            self.kafka.append(TOPIC, made.key, made.value, partition=0, headers=made.headers)

    def latest(self, limit: int) -> tuple[list[str], int, bool]:
        """Return the names of the latest letters, how many were never replayed, and whether the list is complete."""
        found, complete = self.shown.latest("g", limit)
        return [each.name for each in found], sum(each.replayed is None for each in found), complete


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_latest_letters_are_listed_with_their_replays_where_the_older_ones_take_too_long(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letters, "LIMITS", CUT_OFF)
    bench.add(POLL_RECORDS + 1000)
    bench.replay(range(POLL_RECORDS + 900, POLL_RECORDS + 1000))
    names, open_ones, complete = bench.latest(500)
    assert (names[0], len(names), open_ones, complete) == (f"0:{POLL_RECORDS + 999}", 500, 400, True)
    assert bench.latest(950)[1:] == (800, False), (
        "those within the first window, and a word that there may be more"
    )


def test_letters_whose_replays_may_not_have_been_read_are_not_listed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letters, "LIMITS", CUT_OFF)
    bench.add(POLL_RECORDS)
    bench.replay(range(POLL_RECORDS))
    assert bench.latest(100) == ([], 0, False)


def test_letters_behind_many_markers_are_found(bench: Bench) -> None:
    bench.add(3)
    bench.replay(range(2))
    for _ in range(letters.WINDOWS[0]):
        bench.replay(range(1))
    assert bench.latest(100) == (["0:2", "0:1", "0:0"], 1, True)
