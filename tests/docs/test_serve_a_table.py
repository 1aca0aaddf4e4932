"""The page on services around a table: its program, as it stands there, takes, counts and shows votes."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from localkafka.broker import Broker
from localkafka.waiting import wait_until
from servicekit_testing import Process

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/how-to/serve-a-table.md").read_text("utf-8")
(PROGRAM,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def servers(broker: Broker) -> Iterator[str]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    compacted = {"cleanup.policy": "compact"}
    topics = [NewTopic(name, 2) for name in ("vote-events", "votes-retry", "votes-dead-letters")]
    topics.append(NewTopic("votes-table", 2, config=compacted))
    for created in admin.create_topics(topics).values():
        created.result(30)
    yield broker.bootstrap_servers
    for deleted in admin.delete_topics([topic.topic for topic in topics]).values():
        deleted.result(30)


@pytest.mark.broker
@pytest.mark.timeout(240)
def test_the_service_of_the_page_counts_what_it_takes(
    servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "votes.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with ExitStack() as opened:

        def start(command: str) -> Process:
            environment = {
                "STREAMTABLE_BOOTSTRAP_SERVERS": servers,
                "STREAMTABLE_HTTP_ADDRESS": "127.0.0.1:0",
                "STREAMTABLE_STATE_DIR": str(tmp_path / command),
                "STREAMTABLE_INSTANCE_ID": command,
            }
            process = Process("votes", [command], environment)
            opened.callback(process.close)
            return process

        processes = [start(command) for command in ("emitter", "query", "processor")]
        emitter, query = (
            opened.enter_context(httpx.Client(base_url=f"http://{process.address()}", timeout=30))
            for process in processes[:2]
        )
        emitter.post("/votes", json=[{"user_id": "alice"}] * 2).raise_for_status()
        accepted = emitter.post("/votes", json={"user_id": "alice"}).raise_for_status()
        named = {"Streamtable-Token": accepted.headers["Streamtable-Token"]}
        wait_until(lambda: query.get("/votes/alice", headers=named).status_code == 200, 120)
        assert query.get("/votes/alice").json()["votes"] == 3
        assert query.get("/votes/bob").json()["detail"] == "no votes are known"
        assert [process.stop() for process in processes] == [0, 0, 0]
