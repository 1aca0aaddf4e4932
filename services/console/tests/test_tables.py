"""Copies of tables: how many there are, in use and on disk."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from console import tables
from console.clusters import Clusters
from console.decode import PageDecoder
from console.tables import Tables
from localkafka.broker import Broker
from localkafka.fixtures import Topics
from streamtable import Kafka
from streamtable.observe import Metrics

pytestmark = pytest.mark.broker


def test_copies_that_make_room_are_removed_from_disk(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "COPIES_MAX", 2)
    topics, kafka = Topics(broker.bootstrap_servers), Kafka(broker.bootstrap_servers)
    compacted = {"cleanup.policy": "compact"}
    names = [topics.create(f"table-{number}", partitions=1, config=compacted) for number in range(5)]
    folder = tmp_path / "views" / "console-tables"

    def visited(*tables_looked_at: str) -> set[str]:
        """The copies on disk after a run of the console that has looked at these."""
        metrics = Metrics.register(CollectorRegistry())
        copies = Tables(kafka, tmp_path, Clusters(kafka), PageDecoder({}), metrics)
        try:
            for name in tables_looked_at:
                copies.view(name).wait_ready(60)
        finally:
            copies.close()
        return {each.name for each in folder.iterdir()}

    try:
        assert visited(names[0]) == {names[0]}
        assert visited(names[1], names[2], names[1], names[3]) == {names[1], names[3]}
        # Copies of an earlier run count too.
        assert visited(names[4]) < {names[1], names[3], names[4]}
        assert len(visited(names[4])) == 2
    finally:
        topics.delete_all()
