"""A sink is operated like every group: lag, dead letters, replay, doctor, reset, on a real broker and a real PostgreSQL."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from libs.streamtable_cli.tests.bench import Cli

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.waiting import wait_until
from streamtable import App, Emitter, Kafka, Long, Stream, String
from streamtable_sinks import Sink
from streamtable_sinks.postgres import Postgres


@pytest.fixture
def cli(broker: Broker) -> Cli:
    return Cli(broker.bootstrap_servers, "--timeout", "20")


class Place:
    """A sink with its topics and its table."""

    def __init__(self, broker: Broker, topics: Topics, url: str, folder: Path) -> None:
        self.kafka = Kafka(broker.bootstrap_servers)
        self.url = url
        self.folder = folder
        self.events = Stream(topics.create("events", partitions=1), String(), Long())
        self.name = topics.name("out")
        for suffix in ("retry", "dead-letters"):
            topics.create(f"out-{suffix}", partitions=1)

    @contextmanager
    def running(self) -> Iterator[None]:
        sink = Sink(self.name, self.events, Postgres(self.url, "events", lock_timeout=0.2), max_wait=0.05)
        processor = App(self.kafka, self.folder).processor(sink)
        thread = threading.Thread(target=processor.run)
        thread.start()
        try:
            wait_until(lambda: processor.ready, 60, "the sink is ready", every=0.05)
            yield
        finally:
            processor.stop()
            thread.join(60)

    def emit(self, *values: int) -> None:
        with Emitter(self.events, self.kafka) as emitter:
            for value in values:
                emitter.emit("a", value)

    def values(self) -> list[int]:
        with psycopg.connect(self.url) as session:
            return [
                value for (value,) in session.execute("SELECT value FROM events ORDER BY serial").fetchall()
            ]

    def wait(self, expected: list[int]) -> None:
        wait_until(lambda: self.values() == expected, 60, f"the rows {expected}", every=0.05)


@pytest.fixture
def place(broker: Broker, topics: Topics, database: str, tmp_path: Path) -> Place:
    with psycopg.connect(database) as session:
        session.execute("CREATE TABLE events (serial bigserial, value bigint CHECK (value <> 7))")
    return Place(broker, topics, database, tmp_path)


def asked(cli: Cli, good: Callable[[Any], bool], *arguments: str) -> Any:
    """Ask until the answer is good: offsets may be held by the last commit for a moment."""
    found: list[Any] = []

    def answered() -> bool:
        ran = cli(*arguments)
        if ran.code not in {0, 1}:
            return False
        found.append(ran.json if "--json" in arguments else ran.out)
        return good(found[-1])

    wait_until(answered, 60, " ".join(arguments), every=0.1)
    return found[-1]


@pytest.mark.broker
def test_lag_dead_letters_replay_doctor_and_reset_work_as_for_every_group(place: Place, cli: Cli) -> None:
    with place.running():
        place.emit(1, 7, 2)
        place.wait([1, 2])
        lag = asked(cli, lambda found: found["lag"] == 0, "group", "lag", place.name, "--json")
        assert {each["topic"] for each in lag["partitions"]} >= {place.events.name}
        letters = asked(cli, lambda out: "23514" in out, "dead-letters", "list", place.name)
        assert "events" in letters
        doctor = asked(
            cli, lambda found: "1 dead letter" in str(found), "doctor", "--group", place.name, "--json"
        )
        assert place.name in str(doctor)
        with psycopg.connect(place.url) as session:
            session.execute("ALTER TABLE events DROP CONSTRAINT events_value_check")
        cli("dead-letters", "replay", place.name, "--all").good()
        place.wait([1, 2, 7])
    place.emit(3)
    assert asked(cli, lambda found: found["lag"] >= 1, "group", "lag", place.name, "--json")
    asked(cli, lambda _: True, "group", "reset", place.name, "--to", "earliest", "--yes")
    with place.running():
        place.wait([1, 2, 7, 1, 7, 2, 3])


@pytest.mark.broker
def test_doctor_names_a_sink_whose_target_takes_nothing_and_it_goes_on_without_dead_letters(
    place: Place, cli: Cli
) -> None:
    with place.running():
        place.emit(1)
        place.wait([1])
        with psycopg.connect(place.url) as session:
            session.execute("LOCK TABLE events")  # until the transaction ends
            place.emit(2, 3)
            found = asked(
                cli,
                lambda found: "nothing committed" in str(found),
                "doctor",
                "--group",
                place.name,
                "--json",
            )
            (stuck,) = [each for each in found if "nothing committed" in each["fact"]]
            assert stuck["subject"] == f"group {place.name}"
            assert f"{place.events.name} 0: 2 records to do" in stuck["fact"]
        place.wait([1, 2, 3])
        assert cli("dead-letters", "list", place.name, "--json").good().out.strip() == ""
