"""Three brokers, each killed and frozen in turn: leaders and coordinators move, and nothing is lost or doubled."""

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic, TopicMetadata
from tests.faults.arena import BROKER_SETTINGS, Arena, wait_until
from tests.faults.oracle import parts

from localkafka import waiting
from localkafka.broker import Broker, BrokerCluster
from streamtable import App, Long, Stream, String, Table

# Starting three brokers and two processors on one machine takes most of the time.
pytestmark = [pytest.mark.faults_long, pytest.mark.timeout(900)]

LOAD_SECONDS = 6.0
REPLICAS = 3
LEFT_SECONDS = 60.0  # with the timeout of a request that librdkafka has by default, 60 to 72


@pytest.fixture
def cluster() -> Iterator[BrokerCluster]:
    with tempfile.TemporaryDirectory(prefix="streamtable-faults-") as data:
        made = BrokerCluster(Path(data), overrides=BROKER_SETTINGS, heap="320m", brief=True)
        try:
            made.start(180)
            yield made
        finally:
            made.kill()
            made.close()


class Roles:
    """The roles of brokers for the group."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena

    def of(self, node_id: int) -> set[str]:
        found_now = waiting.wait_until(self._look, 60, "the cluster has leaders and a coordinator")
        assert found_now is not None
        topics, coordinator = found_now
        names = {
            self._arena.input: "leads input",
            self._arena.table: "leads the table",
            "__transaction_state": "coordinates transactions",
        }
        found = {
            role
            for name, role in names.items()
            if any(part.leader == node_id for part in topics[name].partitions.values())
        }
        return found | ({"coordinates the group"} if coordinator == node_id else set())

    def _look(self) -> tuple[Mapping[str, TopicMetadata], int] | None:
        """All topics, and the group's coordinator; None while a broker is taking over."""
        group = self._arena.group.name
        try:
            found = self._arena.admin.describe_consumer_groups([group])[group].result(60)
            return self._topics(), found.coordinator.id
        except KafkaException:
            return None

    def whole(self) -> bool:
        """Return whether all replicas of all partitions are in sync."""
        try:
            topics = self._topics()
        except KafkaException:
            return False
        return all(
            len(part.isrs) == REPLICAS for topic in topics.values() for part in topic.partitions.values()
        )

    def _topics(self) -> Mapping[str, TopicMetadata]:
        return self._arena.admin.list_topics(timeout=10).topics


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_each_of_three_brokers_lost_in_turn_under_load_costs_nothing(
    cluster: BrokerCluster, folder: Path, seed: int, tell: Callable[[str], None], how: str
) -> None:
    rng = random.Random(f"{seed} {how}")
    lost: list[str] = []
    with Arena(
        cluster.bootstrap_servers, folder, seed=seed, kind="order", events=12_000, delete_topics=False
    ) as arena:
        roles = Roles(arena)
        for name in ("a", "b"):
            arena.start(name)
        arena.wait_at_work(120)
        seen: set[str] = set()
        brokers: list[Broker] = rng.sample(cluster.brokers, REPLICAS)
        for broker, share in zip(brokers, parts(arena.events, REPLICAS), strict=True):
            wait_until(roles.whole, "all replicas are in sync", 120)
            had = roles.of(broker.node.node_id)
            seen |= had
            load = arena.load(LOAD_SECONDS, share)
            at = arena.handled()
            wait_until(lambda at=at: arena.handled() > at, "something is handled")  # type: ignore[misc] # bound here
            if how == "killed":
                broker.kill()
            else:
                broker.pause()
            load.finish()
            # With two of three brokers everything continues.
            arena.wait_handled(120)
            lost.append(f"{broker.node.node_id} ({', '.join(sorted(had))})")
            if how == "killed":
                broker.start(180)
            else:
                broker.resume()
        assert all(process.running for process in arena.processes.values())
        assert seen == {
            "leads input",
            "leads the table",
            "coordinates transactions",
            "coordinates the group",
        }
        wait_until(roles.whole, "all replicas are in sync", 120)
        arena.finish()
        arena.verify()
    tell(f"{how}: {'; '.join(lost)}")


def test_an_emitter_and_a_view_leave_a_frozen_leader_within_a_minute(
    cluster: BrokerCluster, folder: Path, tell: Callable[[str], None]
) -> None:
    app = App(cluster.bootstrap_servers, folder)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    new = NewTopic("rows-table", 1, REPLICAS, config={"cleanup.policy": "compact"})
    admin.create_topics([new], request_timeout=60)["rows-table"].result()
    rows = Table("rows-table", key=String(), value=Long())
    stream = Stream("rows-table", key=String(), value=Long())
    with app, app.emitter(stream) as emitter, app.view(rows) as view:
        emitter.emit_now("a", 1)
        view.wait_ready(60)
        wait_until(lambda: view.get("a") == 1, "the view shows the first row")
        leader = admin.list_topics(timeout=60).topics["rows-table"].partitions[0].leader
        (broker,) = [each for each in cluster.brokers if each.node.node_id == leader]
        broker.pause()
        try:
            frozen_at = time.monotonic()
            emitter.emit_now("a", 2)
            emitted = time.monotonic() - frozen_at
            wait_until(lambda: view.get("a") == 2, "the view shows what came since", 60)
            seen = time.monotonic() - frozen_at
        finally:
            broker.resume()
    tell(f"emitted {emitted:.0f} s after the leader froze, seen after {seen:.0f} s")
    assert seen < LEFT_SECONDS
