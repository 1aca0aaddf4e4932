import re
from pathlib import Path

import pytest

from localkafka.broker import Broker
from localkafka.errors import BrokerFailed
from localkafka.formatting import CHECKPOINT, format_folder
from localkafka.jars import KAFKA_VERSION
from localkafka.security import Security

TOOL = ["false"]
"""Takes the place of Kafka's storage tool, and fails."""


def test_a_second_folder_is_formatted_without_the_storage_tool(broker: Broker, tmp_path: Path) -> None:
    first = broker.data_dir / "logs"
    format_folder(TOOL, tmp_path / "server.properties", tmp_path / "logs", "a-cluster", 7, KAFKA_VERSION)
    assert sorted(each.name for each in (tmp_path / "logs").iterdir()) == [CHECKPOINT, "meta.properties"]
    found = dict(line.split("=") for line in (tmp_path / "logs/meta.properties").read_text().splitlines())
    assert (found["version"], found["cluster.id"], found["node.id"]) == ("1", "a-cluster", "7")
    assert re.search(r"(?m)^directory\.id=[\w-]{22}$", (first / "meta.properties").read_text())
    assert len(found["directory.id"]) == 22


def test_initial_users_are_created_by_the_tool_and_its_failure_is_raised(tmp_path: Path) -> None:
    with pytest.raises(BrokerFailed, match="could not be formatted"):
        format_folder(
            TOOL,
            tmp_path / "server.properties",
            tmp_path,
            "a-cluster",
            1,
            KAFKA_VERSION,
            Security({"admin": "pw"}),
        )
