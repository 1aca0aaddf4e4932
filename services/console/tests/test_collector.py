"""The collector's thread goes on, whatever Kafka refuses and other programs report."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from services.console.tests.world import status_with

from console.collector import Collector
from console.lags import Lags
from console.statuses import STATUS
from localkafka.waiting import wait_until
from streamtable.errors import AuthorizationError


class Admin:
    denied = False

    def topic_partitions(self) -> dict[str, int]:
        return {"t": 1}

    def watermarks_known(self, _: Any) -> dict[Any, Any]:
        if self.denied:
            raise AuthorizationError(
                user="console", operation="DESCRIBE", resource="topic", name="t", reason="revoked"
            )
        return {}


class World:
    """A cluster, a view of statuses, and an examination: what a collector polls."""

    ready = True
    latest: tuple[None, list[Any]] = None, []

    def __init__(self) -> None:
        self.admin = Admin()
        self.rows = {b"good": STATUS.encode(status_with(at=time.time_ns() // 10**6))}

    def iterate(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(list(self.rows.items()))


@contextmanager
def collecting(world: Any) -> Iterator[Collector]:
    collector = Collector(world, world, {}, Lags(world), world, list)
    collector.start()
    try:
        yield collector
    finally:
        collector.stop()


def test_it_polls_again_after_a_right_was_taken_away_and_given_again() -> None:
    world = World()
    with collecting(world) as collector:
        wait_until(lambda: collector.number > 1, 20, "polls")
        world.admin.denied = True
        time.sleep(2.5)  # two polls
        world.admin.denied = False
        number = collector.number
        wait_until(lambda: collector.number > number + 2, 20, "polls after the right was given again")


def test_a_report_with_the_graph_of_another_group_hides_no_other() -> None:
    world = World()
    graph = json.dumps({"group": "other", "reads": [], "writes": []})
    calls = [{"call": "score", "pending": 1, "oldest_seconds": 1.0, "rate": 1.0, "failed": 0}]
    at = time.time_ns() // 10**6
    world.rows[b"forged"] = STATUS.encode(status_with(group="mine", at=at, graph=graph, calls=calls))
    with collecting(world) as collector:
        wait_until(lambda: collector.number > 2, 20, "polls")
        assert len(collector.document()["instances"]) == 2
